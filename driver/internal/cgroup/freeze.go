package cgroup

import (
	"context"
	"time"
)

// LabelSuspend is the label of a driver that can freeze its tasks here.
const LabelSuspend = "suspend"

// freezerState is v1's file that freezes a group, and has its state.
const freezerState = "freezer.state"

// until calls is until it returns true: the kernel tells no one when a group is
// frozen in v1.
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
