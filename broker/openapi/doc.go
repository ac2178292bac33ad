// Package openapi generates an OpenAPI 3.1 description of the API. Paths come from the registered routes, and schemas
// from the Go types of their bodies. Additions to the Machines API are marked with x-bourse. A table lists the Machines
// API calls, with the differences in Bourse's version, or the reason why Bourse does not serve the call.
package openapi
