package market_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// task returns an order in gru for a task called inc.
func task() bourse.Order {
	return bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: "shop"}, Regions: []bourse.Choice{{"gru"}},
		Task:   &bourse.TaskOrder{Name: "inc", Payload: []byte("payload"), Timeout: bourse.Duration(5 * time.Second)},
		Config: bourse.Config{Requirements: bourse.Requirements{"slots": {Count: 1}}},
	}
}

// shops returns a cluster of n workers in gru. The first two of them have the given number of
// places for a task.
func shops(n int, places int64) *Cluster {
	c := make([]Spec, n)
	for i := range c {
		c[i] = Spec{ID: bourse.WorkerID("w" + string(rune('0'+i))), Region: "gru", Total: bourse.Amounts{{Resource: "slots", Amount: 100}}}
		if i < 2 {
			c[i].Total = append(c[i].Total, bourse.Amount{Resource: bourse.TaskResource("inc"), Amount: places})
		}
	}
	return newCluster(c...)
}

// TestATaskIsNotAskedAbout checks that a task like an earlier one is claimed without requesting
// quotes, however many such tasks there were: when a task is answered, its resources are free
// again. Workers that do not serve the task are not claimed.
func TestATaskIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shops(4, 2)
		x := broker(c, nil)
		for i := range 50 {
			a := place(t.Context(), x, task())
			if a.err != nil || string(a.fill.Task.Answer) != "payload" || a.decision.Machine != a.fill.Task.Machine || c.Ran(a.order.ID) != 1 {
				t.Fatalf("task %d: %+v, %v", i, a.fill, a.err)
			}
		}
		if asks, claims := c.Calls(Ask), c.Calls(Claim); asks != 4 || claims != 50 {
			t.Errorf("%d asks and %d claims, want 4 and 50", asks, claims)
		}
	})
}

// TestThePayloadTravelsOnce checks that the payload is sent only to the worker that is claimed, and
// that the decision does not contain it.
func TestThePayloadTravelsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shops(2, 2)
		link := &watched{Link: c.Link()}
		x := broker(c, func(cfg *market.Config) { cfg.Trader = link })
		a := place(t.Context(), x, task())
		if a.err != nil || link.asked == nil || len(link.asked.Task.Payload) != 0 || string(link.claimed.Order.Task.Payload) != "payload" || len(link.claimed.Decision.Rounds) != 0 {
			t.Errorf("asked %+v, claimed %+v, %v", link.asked, link.claimed, a.err)
		}
	})
}

// TestInvariant7ATaskIsNotBegunTwice checks that a task's order fails if a claim is not answered,
// even if another worker has capacity. A repeated order returns the outcome.
func TestInvariant7ATaskIsNotBegunTwice(t *testing.T) {
	for name, fault := range map[string]Fault{
		"the answer is lost":  {LoseReply: true, Reset: true},
		"the request is lost": {LoseRequest: true, Reset: true},
		"the task hangs":      {LoseReply: true},
	} {
		for _, named := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := shops(3, 2)
					x := broker(c, nil)
					defer running(t.Context(), x)()
					c.Break(func(call Call) Fault {
						if call.Verb == Claim {
							return fault
						}
						return Fault{}
					})
					o := task()
					o.HasChosenID = named
					a := place(t.Context(), x, o)
					fails(t, a.err, bourse.CodeTimeout)
					if claims := c.Calls(Claim); claims != 1 || a.took > o.Deadline() {
						t.Errorf("%d claims in %s", claims, a.took)
					}
					c.Break(nil)
					if !named { // see errUnknownTask: the repeated order may go to another worker
						c.Quiet()
					}
					o.HasChosenID = true
					before := c.Ran(o.ID)
					again := place(t.Context(), x, o)
					if before == 1 && (again.err != nil || !again.fill.Repeated || string(again.fill.Task.Answer) != "payload") {
						t.Errorf("again: %+v, %v", again.fill, again.err)
					}
					if n := c.Ran(o.ID); n > 1 {
						t.Errorf("the task ran %d times", n)
					}
				})
			})
		}
	}
}

// TestATaskIsNotBegunBehindASilentWorker checks that a task is not started if its ID was chosen by
// the caller and a worker that does not answer may already have started it.
func TestATaskIsNotBegunBehindASilentWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shops(3, 2)
		x := broker(c, nil)
		c.Break(func(call Call) Fault { return Fault{LoseRequest: call.Worker == "w1"} })
		o := task()
		o.HasChosenID = true
		fails(t, place(t.Context(), x, o).err, bourse.CodeUnavailable)
		c.Break(nil)
		if a := place(t.Context(), x, o); a.err != nil || c.Ran(o.ID) != 1 {
			t.Errorf("later: %v, %d runs", a.err, c.Ran(o.ID))
		}
	})
}

// TestTwoBrokersRunATaskOnce checks that two brokers that receive the same order at the same time
// claim it on the same worker.
func TestTwoBrokersRunATaskOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := shops(2, 5)
			o := task()
			o.HasChosenID = true
			c.Break(func(Call) Fault {
				return Fault{Delay: time.Duration(rand.IntN(5)) * time.Millisecond}
			})
			var group sync.WaitGroup
			for range 2 {
				x := broker(c, nil)
				group.Go(func() {
					if a := place(t.Context(), x, o); a.err != nil {
						t.Error(a.err)
					}
				})
			}
			group.Wait()
			if n := c.Ran(o.ID); n != 1 {
				t.Errorf("the task ran %d times", n)
			}
		})
	}
}

// TestNobodyTakesATask checks the error if no worker serves a task, or if none has room for it. The
// error must contain each refusal.
func TestNobodyTakesATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shops(3, 0)
		x := broker(c, nil)
		for range 2 {
			a := place(t.Context(), x, task())
			fails(t, a.err, bourse.CodeInsufficient)
			if r := a.decision.Refusals(); len(r) != 3 || !slices.ContainsFunc(r, func(r bourse.Refusal) bool { return r.Resource == "task inc" && r.Wanted == 1 }) {
				t.Errorf("refusals %+v", r)
			}
		}
		if asks := c.Calls(Ask); asks != 6 {
			t.Errorf("%d asks, want 6: a refusal must not come from the cache", asks)
		}
	})
}
