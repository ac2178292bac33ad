// Package hostile drives whole programs as those do who mean them harm: web
// pages, other users of the host, slow and huge clients, tenants, members. Each
// test shows one sentence of docs/security.md.
package hostile
