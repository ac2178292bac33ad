//go:build !linux

package container

import "github.com/bourse-dev/bourse"

func errNotHere() error {
	return bourse.Errorf(bourse.CodeUnavailable, "containers' secrets require Linux")
}

func tmpfs() (string, error) { return "", errNotHere() }

func checkPrivate(string) error { return errNotHere() }

func inMemory([]byte) (string, error) { return "", errNotHere() }

// ExecRunc requires Linux.
func ExecRunc([]string) error { return errNotHere() }
