// Package openapi generates an OpenAPI 3.1 description of the API. Paths are taken from the
// registered routes, schemas from the Go types of their bodies. Additions to the Machines
// API are marked with x-bourse. A table of the Machines API's calls lists those that Bourse
// serves differently or not at all, and why.
package openapi
