// Package workload interprets a machine's configuration. It returns the machine's [Services], its
// [Checks] and its program ([ProgramOf]). [Review] returns the configuration's errors and
// warnings. Formats, names and defaults are those of the Machines API.
//
// All functions except [Check.Probe] depend only on the configuration. Proxies use the services
// to route requests. Workers run the program, probe the checks, and stop machines that nobody
// uses. Brokers review the configuration of each order and update, and refuse invalid
// configurations. Most functions therefore return no errors. If a hostile worker publishes a
// configuration that no broker has reviewed, its invalid parts are treated as empty.
package workload
