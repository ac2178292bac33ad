package worker

import (
	"context"
	"runtime"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// How long a claim may keep others from beginning. What takes longer waits for
// an image or for a program, not for this worker.
const (
	machineLease = 250 * time.Millisecond
	taskLease    = 25 * time.Millisecond
)

// claimTurns says how many claims are worked on at once, from all brokers
// together: twice what one broker has in progress, so that one alone is never
// refused. Who gets no turn soon is to ask another worker.
func claimTurns() throttle.TurnsConfig {
	n := 64 * runtime.GOMAXPROCS(0)
	return throttle.TurnsConfig{AtOnce: n, Queue: n, Patience: 100 * time.Millisecond}
}

// admit is claim within the worker's limits. Beyond them nothing was done, and
// the code is rate_limited: it is no refusal.
func (w *Worker) admit(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	lease := machineLease
	if c.Order.Warm() {
		lease = taskLease
	}
	turn, err := w.turns.Take(ctx, lease)
	if err != nil {
		return nil, nil, err
	}
	defer turn.Done()
	return w.claim(ctx, c)
}
