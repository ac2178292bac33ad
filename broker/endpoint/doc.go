// Package endpoint handles the parts that all requests to the public API have in common. It assigns
// a request id, identifies the caller and checks permissions, queues orders, decodes the body, and
// writes and logs the reply or error. It also counts all of this for the broker's metrics.
package endpoint
