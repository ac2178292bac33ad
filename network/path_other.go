//go:build !linux

package network

import "github.com/bourse-dev/bourse"

// Namespace gives nothing.
func (*Network) Namespace(bourse.MachineID) string { return "" }
