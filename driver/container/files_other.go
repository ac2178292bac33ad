//go:build !linux

package container

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func writeFile(string, driver.File) error {
	return bourse.Errorf(bourse.CodeUnavailable, "files of containers are written on Linux only")
}

func isDir(string, string) bool { return false }
