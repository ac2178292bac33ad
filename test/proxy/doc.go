// Package proxy holds tests of the proxy as clients see it: real servers, real
// sockets, curl, a browser, and processes that are killed.
package proxy
