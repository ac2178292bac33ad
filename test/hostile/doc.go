// Package hostile tests whole programs from the point of view of attackers: web pages,
// other users of the host, slow and large clients, tenants, members. Each test verifies one
// sentence of docs/security.md.
package hostile
