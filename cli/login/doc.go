// Package login implements the commands that select a cluster for other commands: "bourse
// login", "logout" and "context".
package login
