package network

import "github.com/bourse-dev/bourse"

// Namespace returns the path of a machine's network namespace, whether it is
// exists or not.
func (n *Network) Namespace(id bourse.MachineID) string { return n.host.files.path(id) }
