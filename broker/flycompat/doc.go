// Package flycompat serves the APIs that flyctl uses in addition to the Machines API:
// GraphQL at /graphql, and a small REST API, including logs, below /api/v1. Bourse's
// own clients do not use them.
//
// The package exports only [Handler]. The handler stores nothing, and calls /v1 in the same process
// with the caller's credentials, so /v1 decides who may see what.
//
// A GraphQL query is parsed within bounds and answered by walking its fields over objects
// (schema.go). Fields that require a call of /v1 are resolved only if the query selects them. A
// field without a counterpart in Bourse is null, and an unknown root field is an error. The package
// contains no GraphQL schema, because clients are checked against the original schema when they are
// built.
package flycompat
