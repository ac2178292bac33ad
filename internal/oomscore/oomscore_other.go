//go:build !linux

package oomscore

// Protect does nothing: only Linux has such scores.
func Protect(int) {}

// Unprotected calls fork.
func Unprotected(fork func()) { fork() }
