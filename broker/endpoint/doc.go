// Package endpoint implements the steps that all public API requests have in common. It assigns a request ID,
// identifies the caller, checks permissions, queues orders, decodes the body, and writes and logs the reply or error.
// It also maintains the broker's metrics.
package endpoint
