// Package login implements the commands that select the cluster for the other commands:
// "bourse login", "logout" and "context".
package login
