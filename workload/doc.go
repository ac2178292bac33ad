// Package workload derives from a machine's configuration what the machine
// serves ([Services]), what is checked ([Checks]), what it runs ([ProgramOf]),
// and what a review reports about it ([Review]). The shapes, names and defaults
// are those of the Machines API.
//
// Everything except [Check.Probe] is a function of the configuration alone: the
// package stores nothing and starts nothing. Brokers review the configuration of each
// order and update and refuse an invalid one, so the other functions return no errors:
// proxies route by services, and workers run the program, probe the checks, and stop
// machines that nobody uses. The row of a hostile worker may still have a configuration
// that no broker has reviewed; whatever is invalid in it reads as empty.
package workload
