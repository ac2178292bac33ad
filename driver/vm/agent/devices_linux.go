package main

import (
	"fmt"
	"os"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// holdDevices opens the machine's block devices, so that the kernel cannot reassign their device numbers until this
// process exits. It returns an error if a number has already been reassigned to another device. This can happen if the
// driver has given up on this start and the devices have been detached. The caller must keep the returned files open.
func holdDevices(devices []session.Device) (held []*os.File, err error) {
	for _, d := range devices {
		f, err := os.Open(d.Path)
		if err != nil {
			return held, err
		}
		held = append(held, f)
		n, err := session.Sequence(f)
		if err == nil && n != d.Sequence {
			err = fmt.Errorf("%s is now another device: got sequence number %d, want %d", d.Path, n, d.Sequence)
		}
		if err != nil {
			return held, err
		}
	}
	return held, nil
}
