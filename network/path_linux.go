package network

import "github.com/bourse-dev/bourse"

// Namespace returns the path of a machine's network namespace, which may not exist.
func (n *Network) Namespace(id bourse.MachineID) string { return n.host.files.path(id) }
