//go:build !linux

package container

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func writeFile(string, driver.File) error {
	return bourse.Errorf(bourse.CodeUnavailable, "writing files of containers requires Linux")
}

func isDir(string, string) bool { return false }
