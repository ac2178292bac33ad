//go:build !linux

package main

import "context"

// sweepHost does nothing. Only workers on Linux leave anything on the host except
// processes and files, which a sweep does not remove.
func sweepHost(context.Context, string, string, string) error { return nil }
