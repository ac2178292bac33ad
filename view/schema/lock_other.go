//go:build !unix

package schema

// Lock does nothing on this platform. The user must ensure that only one process uses the file.
func Lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }
