package cgroup

import (
	"context"
	"time"
)

// LabelSuspend is the driver label for hosts on which tasks can be frozen.
const LabelSuspend = "suspend"

// freezerState is the v1 file that freezes a group and reports its state.
const freezerState = "freezer.state"

// until calls is repeatedly until it returns true or an error, or ctx ends. v1 does not notify
// anyone when a group is frozen.
func until(ctx context.Context, is func() (bool, error)) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if done, err := is(); done || err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
