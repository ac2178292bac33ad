// Package cli is the command line: one verb per file, and what it prints.
//
// Commands are noun then verb, singular: "bourse machine run". Results go to
// standard output, everything else (progress, questions, errors) to standard
// error, so that a pipe sees results only. With --json a result is the public
// API's own object (types of package machinesapi), and nothing else; its shape
// changes only as the API's does:
//
//	machine run, status           Machine
//	machine list                  [Machine, …]
//	machine stop, restart, wait   WaitReply; OK with --detach; one for each machine
//	machine start                 StartReply
//	machine signal, destroy       OK
//	machine exec                  ExecReply
//	machine logs                  LogLine, one a line
//	app create                    App
//	app list                      [App, …]
//	app destroy                   OK
//	order show, quote             bourse.Decision
//	worker list, show             WorkerList, Worker
//	worker runs                   RunList; with a verb Run
//	sql                           [{column: value, …}, …]
//	sql --watch                   {kind, change, id, row}, one a line
//	sql --tables                  [{table, columns}, …]
//	view health                   ViewHealth
//	dev                           {api, pid, data, servers: [Ready, …]}
//	version                       Version
//
// Every error has a code of package bourse; exit.go holds the one table from
// codes to exit statuses, hint.go what a person may try next.
//
// The client verbs know the public API alone. The servers are named by
// cmd/bourse, which hands this package one function for each role; dev.go
// starts them as processes of their own.
package cli
