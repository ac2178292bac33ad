package worker

import (
	"net/http"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
)

// Invariant 7 for tasks: repeating a task's order returns the first answer, even from the next daemon, and the program
// receives the payload only once.
func TestInvariant7ATaskRunsOnce(t *testing.T) {
	p := newProgram(t, nil)
	h := newHost(t, nil)
	h.place(p.Warmed("echo", 1))
	order := call(t, "echo", 1)
	first := h.result(t.Context(), order)
	for range 2 {
		fill, _, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || !fill.Repeated || ended(fill.Task) != ended(first) || !fill.Task.StartedAt.Equal(first.StartedAt) {
			t.Errorf("repeated: %+v, %v; want %+v", fill, err, first)
		}
		order.HasChosenID = true
		q, err := h.quote(t.Context(), order.ForQuote())
		if err != nil || q.FilledTask == nil || q.FilledTask.End != bourse.TaskAnswered || len(q.FilledTask.Answer) > 0 {
			t.Errorf("quote of a repeated order: %+v, %v", q, err)
		}
		if _, err := h.cancel(t.Context(), order.ID); err != nil { // the cancellation comes too late and does not change the result
			t.Error(err)
		}
		if n := p.Times(order.ID); n != 1 {
			t.Errorf("the payload arrived %d times", n)
		}
		h.slots() // wait until the task's end is durable
		h.crash()
		h.start(nil)
	}
	h.verify()
}

// Sixteen concurrent claims of one order make one call to the program.
func TestClaimsOfOneTaskAreOneCall(t *testing.T) {
	release := make(chan struct{})
	p := newProgram(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = w.Write([]byte("late"))
	})
	h := newHost(t, nil)
	h.place(p.Warmed("echo", 16))
	order := call(t, "echo", 1)
	var group sync.WaitGroup
	var again sync.Map
	for i := range 16 {
		group.Go(func() {
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			if err != nil || refusal != nil || ended(fill.Task) != "answered 0 late" {
				t.Errorf("claim: %+v, %+v, %v", fill, refusal, err)
				return
			}
			again.Store(i, fill.Repeated)
		})
	}
	<-p.Arrived
	close(release)
	group.Wait()
	firsts := 0
	again.Range(func(_, v any) bool {
		if v == false {
			firsts++
		}
		return true
	})
	if firsts != 1 || p.Calls.Load() != 1 {
		t.Errorf("%d claims began the call, %d calls", firsts, p.Calls.Load())
	}
}
