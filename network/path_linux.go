package network

import "github.com/bourse-dev/bourse"

// Namespace returns the path of a machine's network namespace. The path exists only if the machine
// has a network.
func (n *Network) Namespace(id bourse.MachineID) string { return n.host.files.path(id) }
