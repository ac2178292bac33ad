// Package workload interprets machine configurations. It returns a machine's [Services], [Checks] and program
// ([ProgramOf]). [Review] returns a configuration's errors and warnings. Formats, names and defaults are those of the
// Machines API.
//
// All functions except [Check.Probe] depend only on the configuration. Proxies use the services to route requests.
// Workers run the program, probe the checks, and stop idle machines. Brokers review the configuration in each order
// and update, and refuse invalid ones. Therefore, most functions do not return errors. If a configuration was not
// reviewed by a broker, for example because a hostile worker published it, its invalid parts are treated as empty.
package workload
