// Package endpoint is what every request of the public API goes through on its
// way to a handler and back: it gets an id, its caller is found out, it waits
// for its turn where it is an order, its body is decoded, and its reply or its
// error is written and logged.
package endpoint
