package tasks

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/tasks/taskstest"
)

// Invariants 4 and 7 hold while many callers claim tasks with random numbers of slots, cancel, disconnect, time out and
// repeat orders, and a machine is restarted. No payload arrives twice, and in the end all slots and places are free
// again.
func TestAStormOfTasks(t *testing.T) {
	for _, protocol := range taskProtocols {
		t.Run(string(protocol), func(t *testing.T) { stormOfTasks(t, protocol) })
	}
}

func stormOfTasks(t *testing.T, protocol bourse.TaskProtocol) {
	const callers, each, places = 16, 40, 4
	p := taskstest.NewProgramOf(t, protocol, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
			if rand.IntN(10) == 0 {
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write([]byte("done"))
		case <-r.Context().Done():
		}
	})
	h := newHost(t)
	m := h.place(p.Warmed("storm", places))
	ctx, stop := context.WithCancel(t.Context())
	var checker, group sync.WaitGroup
	checker.Go(func() {
		for ctx.Err() == nil {
			h.verify() // nothing is oversold and all sums are correct
		}
	})
	var mu sync.Mutex
	var orders []*bourse.Order
	for n := range uint64(callers) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(n, 7))
			for range each {
				order := taskstest.Call(t, "storm", rng.Int64N(5), taskstest.Within(time.Duration(1+rng.IntN(20))*time.Millisecond))
				mu.Lock()
				orders = append(orders, order)
				mu.Unlock()
				h.stormy(ctx, rng, order)
			}
		})
	}
	group.Wait()
	stop()
	checker.Wait()
	for _, o := range orders {
		if n := p.Times(o.ID); n > 1 {
			t.Errorf("order %s: its payload arrived %d times", o.ID, n)
		}
	}
	if slots, open := h.slots(), h.openTasks(); slots != 0 || len(open) != 0 {
		t.Errorf("left behind: %d slots, tasks %v", slots, open)
	}
	h.warm.mu.Lock()
	for id, w := range h.warm.known {
		if w.busy != 0 {
			t.Errorf("%d places of machine %s were not released", w.busy, id)
		}
	}
	h.warm.mu.Unlock()
	if got := h.get(m.ID); got.State != bourse.StateStarted {
		t.Errorf("the machine is %s", got.State)
	}
	h.verify()
}

// stormy claims an order, and randomly cancels it, disconnects, or repeats it.
func (h *host) stormy(ctx context.Context, rng *rand.Rand, order *bourse.Order) {
	claims := 1 + rng.IntN(2)
	pause := time.Duration(rng.IntN(5)) * time.Millisecond
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var group sync.WaitGroup
	for range claims {
		group.Go(func() {
			fill, refusal, err := h.Claim(ctx, &bourse.Claim{Order: *order})
			if ctx.Err() == nil && (err != nil || (fill == nil) == (refusal == nil)) {
				h.t.Errorf("claim: %+v, %+v, %v", fill, refusal, err)
			}
		})
	}
	switch rng.IntN(4) {
	case 0:
		state.Sleep(ctx, pause)
		leave()
	case 1:
		state.Sleep(ctx, pause)
		if err := h.cancel(ctx, order.ID); err != nil {
			h.t.Errorf("cancel: %v", err)
		}
	}
	group.Wait()
}
