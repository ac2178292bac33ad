//go:build !unix

package view

// lock does nothing here: that one process uses the file is up to its user.
func lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }
