// Package flycompat serves what flyctl asks beside the Machines API: GraphQL at
// /graphql, and a small REST API with logs below /api/v1. Bourse's own clients do
// not use it.
//
// It is a client of /v1 in the same process: it has the caller's credentials and
// nothing more, so who may see what is decided where it always is, and it keeps
// nothing. [Handler] is all that the program knows of it.
//
// A GraphQL query is parsed within bounds, and answered by walking its fields over
// objects (schema.go) whose costly fields are found when they are asked for. A field
// that Bourse has nothing for is null, a root field that does not exist is an
// error. Clients check queries against the original schema when they are built, so
// there is none here.
package flycompat
