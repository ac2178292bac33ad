// Package flycompat serves the APIs that flyctl uses in addition to the Machines API: GraphQL at /graphql, and a small
// REST API, which includes logs, under /api/v1. Bourse's own clients do not use them.
//
// The package exports only [Handler]. The handler stores nothing. It calls /v1 in the same process with the caller's
// credentials, so /v1 makes all authorization decisions.
//
// The size and cost of GraphQL queries are limited. A query is answered by resolving its fields on a tree of objects
// (schema.go). Fields that require a call to /v1 are resolved only if the query selects them. A field that has no
// counterpart in Bourse is null. An unknown root field is an error. The package contains no GraphQL schema, because
// clients are checked against Fly's schema when they are built.
package flycompat
