//go:build !linux

package network

import "github.com/bourse-dev/bourse"

// Namespace returns "".
func (*Network) Namespace(bourse.MachineID) string { return "" }
