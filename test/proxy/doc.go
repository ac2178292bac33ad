// Package proxy tests the proxy from a client's point of view: with real servers, real
// sockets, curl, a browser, and processes that are killed.
package proxy
