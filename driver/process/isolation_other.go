//go:build unix && !linux

package process

import "github.com/bourse-dev/bourse"

func (*isolation) enter(places) error {
	return bourse.Errorf(bourse.CodeInvalid, "private networks and mounts require Linux")
}
