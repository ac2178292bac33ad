// Package openapi describes the API in the terms of OpenAPI 3.1: its paths are
// those of the routes that are served, its schemas follow from the types that
// these read and write. What of it Bourse has added to the Machines API is marked
// with x-bourse; the table of that API's calls says which those are, and which of
// them are not offered, and why.
package openapi
