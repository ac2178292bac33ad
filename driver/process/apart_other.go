//go:build unix && !linux

package process

import "github.com/bourse-dev/bourse"

func (*apart) do(string, func() (int, error)) (int, error) {
	return 0, bourse.Errorf(bourse.CodeInvalid, "a network or mounts of its own: only Linux has them")
}
