package main

import (
	"fmt"
	"os"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// holdDevices opens the machine's block devices, so that their numbers remain theirs until this process ends. It returns an error if
// a number already belongs to another device. That would be possible if the driver had given up this start.
func holdDevices(devices []session.Device) (held []*os.File, err error) {
	for _, d := range devices {
		f, err := os.Open(d.Path)
		if err != nil {
			return held, err
		}
		held = append(held, f)
		n, err := session.Sequence(f)
		if err == nil && n != d.Sequence {
			err = fmt.Errorf("%s is another device: its sequence number is %d, not %d", d.Path, n, d.Sequence)
		}
		if err != nil {
			return held, err
		}
	}
	return held, nil
}
