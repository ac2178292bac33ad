package cgroup

import (
	"context"
	"time"
)

// LabelSuspend is the driver label that is present if the host can freeze tasks.
const LabelSuspend = "suspend"

// freezerState is the name of the v1 file that freezes a group and reports its state.
const freezerState = "freezer.state"

// until calls condition repeatedly until it returns true or an error, or ctx is done. Polling is
// necessary because cgroup v1 does not send a notification when a group has been frozen.
func until(ctx context.Context, condition func() (bool, error)) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if done, err := condition(); done || err != nil {
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
