//go:build !unix

package sqlfile

// Lock does nothing here: that one process uses the file is up to its user.
func Lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }
