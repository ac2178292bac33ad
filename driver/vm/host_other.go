//go:build !linux

package vm

import "github.com/bourse-dev/bourse"

func addTap(string, uint32) (device, error) {
	return device{}, bourse.Errorf(bourse.CodeFailedPrecondition, "virtual machines require Linux")
}

func deviceNumbers(string) (major, minor int64, ok bool) { return 0, 0, false }

func findBlockDevice(string) (blockDevice, error) {
	return blockDevice{}, bourse.Errorf(bourse.CodeFailedPrecondition, "virtual machines require Linux")
}
