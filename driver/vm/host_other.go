//go:build !linux

package vm

import "github.com/bourse-dev/bourse"

func addTap(string, uint32) (device, error) {
	return device{}, bourse.Errorf(bourse.CodeFailedPrecondition, "virtual machines require Linux")
}

func blockNumbers(string) (major, minor int64, ok bool)  { return 0, 0, false }
func deviceNumbers(string) (major, minor int64, ok bool) { return 0, 0, false }
