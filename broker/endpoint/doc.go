// Package endpoint handles the common parts of every request to the public API. It assigns
// a request id, identifies the caller and checks permissions, queues orders, decodes the
// body, and writes and logs the reply or error. It also counts all of this for the broker's
// metrics.
package endpoint
