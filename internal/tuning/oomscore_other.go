//go:build !linux

package tuning

// ProtectFromOOM does nothing, because only Linux has OOM scores.
func ProtectFromOOM(int) {}

// ForkUnprotected calls fork.
func ForkUnprotected(fork func()) { fork() }
