// Package login implements the commands that choose the cluster the other commands
// use: login, logout and context.
package login
