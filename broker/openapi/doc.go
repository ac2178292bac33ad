// Package openapi generates an OpenAPI 3.1 description of the API. Paths are taken from the
// registered routes, schemas from the Go types of their bodies. Additions to the Machines API are
// marked with x-bourse. A table contains the calls of the Machines API. For each of them, it
// describes how Bourse's version differs, or why Bourse does not serve the call.
package openapi
