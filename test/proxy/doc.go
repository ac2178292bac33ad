// Package proxy tests the proxy from the point of view of its clients. It uses real
// servers, real sockets, curl and a browser, and kills processes.
package proxy
