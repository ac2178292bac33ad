//go:build unix && !linux

package process

import "github.com/bourse-dev/bourse"

func (*apart) enter(string) error {
	return bourse.Errorf(bourse.CodeInvalid, "a network or mounts of its own: only Linux has them")
}
