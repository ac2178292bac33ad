// Package workload derives from a machine's configuration its [Services], its [Checks], its program ([ProgramOf]),
// and the warnings of a [Review]. The shapes, names and defaults are those of the Machines API.
//
// Everything except [Check.Probe] is a function of the configuration alone: the package stores nothing and starts
// nothing. Brokers review the configuration of each order and update and refuse an invalid one, so the other
// functions return no errors: proxies route by services, and workers run the program, probe the checks, and stop
// machines that nobody uses. A row of a hostile worker may contain a configuration that no broker has reviewed; its
// invalid parts are treated as empty.
package workload
