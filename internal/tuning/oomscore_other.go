//go:build !linux

package tuning

// ProtectFromOOM does nothing: only Linux has such scores.
func ProtectFromOOM(int) {}

// ForkUnprotected calls fork.
func ForkUnprotected(fork func()) { fork() }
