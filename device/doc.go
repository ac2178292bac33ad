// Package device finds the GPUs of a host, and the names by which a container
// runtime gives them to a machine.
//
// Names are those of the Container Device Interface: "vendor.com/class=name".
// What is behind one, device nodes, libraries, hooks, is in a specification
// in /etc/cdi or /var/run/cdi, which the vendor's tools write or the operator
// does. This package only reads: a GPU without a name cannot be given to a
// machine, so it is reported and not sold.
package device
