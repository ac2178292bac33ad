// Package cli contains the code that all commands share: the environment and global flags
// of an invocation (Shell), an API client, tables and text formatting, confirmations,
// and the mapping from errors to exit statuses. Each noun has a package below this one,
// with one file for each verb. Package cmd/bourse assembles the commands and calls Main.
//
// Commands are a singular noun followed by a verb: "bourse machine run". Results go to
// standard output. Everything else (progress, questions, errors) goes to standard error, so
// that a pipe receives only results. With --json, a command prints an object of the public
// API unchanged (a type of package machinesapi), so that its fields change only when the
// API does. docs/commands.md lists these objects.
//
// Every error has one of package bourse's codes. errors.go maps codes to exit statuses and
// hints.
//
// Client commands use only the public API.
package cli
