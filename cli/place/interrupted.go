package place

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// Interval and time limit for polling an order whose request was interrupted. Polling stops when
// the broker has recorded the order's outcome.
const (
	cancelTimeout = 5 * time.Second
	cancelStep    = 100 * time.Millisecond
)

// afterInterrupt returns the outcome of an order whose request the user interrupted.
func afterInterrupt(s *cli.Shell, order bourse.OrderID) error {
	if order == "" {
		return bourse.Errorf(bourse.CodeCanceled, "interrupted")
	}
	defer cli.Spin(s.Err, "canceling order "+string(order))()
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	tick := time.NewTicker(cancelStep)
	defer tick.Stop()
	for {
		d, err := s.Client().Order(ctx, order)
		if err == nil {
			return interruptedOrder(&d, order)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return cli.Interrupted("interrupted; the outcome of order " + string(order) + " is unknown: bourse order show " + string(order))
		}
	}
}

func interruptedOrder(d *bourse.Decision, order bourse.OrderID) error {
	what := "interrupted; order " + string(order)
	switch d.Outcome {
	case bourse.OutcomeFilled:
		if d.Machine != "" {
			return cli.Interrupted(what + " had been filled: bourse machine status -a " + string(d.App) + " " + string(d.Machine))
		}
		return cli.Interrupted(what + " had been filled: bourse order show " + string(order))
	case bourse.OutcomeCanceled:
		return cli.Interrupted(what + " was canceled")
	case bourse.OutcomeRefused, bourse.OutcomeTimeout, bourse.OutcomeQuoted:
		return cli.Interrupted(what + " was not filled")
	}
	return cli.Interrupted(what + " is " + string(d.Outcome))
}
