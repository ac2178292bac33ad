package companion

import (
	"context"
	"time"
)

// AwaitEnd waits until no process holds the lock on the file at path. The kernel releases the lock
// only when the process that holds it has exited.
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
