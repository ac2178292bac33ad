// Package cli is what all commands have in common: the surroundings and global
// flags of a run (Shell), the client of the API, tables and texts, questions,
// and the way from an error to an exit status. Each noun is a package below it,
// one verb a file; cmd/bourse puts them together and calls Main.
//
// Commands are noun then verb, singular: "bourse machine run". Results go to
// standard output, everything else (progress, questions, errors) to standard
// error, so that a pipe sees results only. With --json a result is the public
// API's own object (types of package machinesapi), and nothing else; its shape
// changes only as the API's does. docs/commands.md lists them.
//
// Every error has a code of package bourse; exit.go holds the one table from
// codes to exit statuses, hint.go what a person may try next.
//
// Client commands use the public API alone.
package cli
