package companion

import (
	"context"
	"time"
)

// AwaitEnd waits until no one holds the lock any more: the kernel gives it
// back when the process is gone, and not before.
func AwaitEnd(ctx context.Context, path string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if free, err := LockFree(path); free || err != nil {
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
