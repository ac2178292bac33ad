// Package hostile tests whole programs from the point of view of attackers: web pages, other users
// on the host, clients that are slow or send too much, tenants, and members of the cluster. Each
// test verifies a claim in docs/security.md.
package hostile
