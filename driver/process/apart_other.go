//go:build unix && !linux

package process

import "github.com/bourse-dev/bourse"

func (*apart) enter(places) error {
	return bourse.Errorf(bourse.CodeInvalid, "a network or mounts of its own: only Linux has them")
}
