package market_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestRaceKeepsTheFirstThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(4, room(1))
		c.Break(func(call Call) Fault {
			if call.Verb != Claim {
				return Fault{}
			}
			return Fault{ReplyDelay: map[bourse.WorkerID]time.Duration{
				"w0": 4 * time.Second, "w1": time.Second, "w2": 3 * time.Second, "w3": 2 * time.Second,
			}[call.Worker]}
		})
		o := order("gru")
		o.Race = 4
		a := place(t.Context(), broker(c, nil), o)
		c.Quiet()
		if a.err != nil || a.fill.Machine.Worker != "w1" || a.took != time.Second {
			t.Fatalf("filled on %q after %s: %v", a.fill.Machine.Worker, a.took, a.err)
		}
		if living := c.Living(o.ID); len(living) != 1 || living[0].ID != a.fill.Machine.ID {
			t.Errorf("existing machines: %+v", living)
		}
		claims := a.decision.Rounds[0].Claims
		if len(claims) != 4 || len(a.decision.Refusals()) != 3 {
			t.Errorf("recorded: %+v", claims)
		}
		for _, r := range a.decision.Refusals() {
			if r.Reason != bourse.RefusedCanceled {
				t.Errorf("%s: %s", r.Worker, r.Reason)
			}
		}
	})
}
