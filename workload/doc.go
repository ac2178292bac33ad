// Package workload derives from a machine's configuration what the machine
// serves ([Services]), what is checked ([Checks]), what it runs ([ProgramOf]),
// and what a review reports about it ([Review]). The shapes, names and defaults
// are those of the Machines API.
//
// Everything except [Check.Probe] is a function of the configuration alone: the
// package stores nothing and starts nothing. Brokers refuse an order whose
// configuration is invalid, proxies route by its services, and workers run its
// program, probe its checks, and stop machines that nobody uses.
package workload
