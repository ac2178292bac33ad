package fsm_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

func TestCancelRunning(t *testing.T) {
	var cause error
	var both chan struct{} // closed once the run has been canceled twice
	d := one("create", func(ctx context.Context, r *run) fsm.Outcome {
		o := hang(ctx, r)
		cause = context.Cause(ctx)
		<-both
		return o
	})
	inLab(t, func(t *testing.T, l *lab) {
		both = make(chan struct{})
		h := l.start(d, "", fsm.StartOptions{})
		time.Sleep(time.Second)
		for range 2 {
			if err := l.Cancel(t.Context(), h.ID(), "the order is canceled"); err != nil {
				t.Fatal(err)
			}
		}
		close(both)
		if err := l.waitErr(h, bourse.CodeCanceled); bourse.MessageOf(err) != "the order is canceled" {
			t.Errorf("run ended with %v", err)
		}
		if bourse.CodeOf(cause) != bourse.CodeCanceled {
			t.Errorf("cause of the step context's end: %v", cause)
		}
		if err := l.Cancel(t.Context(), h.ID(), "again"); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("cancel of an ended run: %v", err)
		}
		if err := l.Cancel(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", ""); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("cancel of an unknown run: %v", err)
		}
	}, d)
}

func TestCancelCompensates(t *testing.T) {
	var trail []string
	wrote := false
	d := one("create", hang).OnCancel(func(_ context.Context, r *run) fsm.Outcome {
		trail = append(trail, r.Request+": "+r.Cancel+" at "+r.Step)
		if r.Attempt == 0 {
			return fsm.Retry(errors.New("not yet"))
		}
		return fsm.Done(func(fsm.Tx) error { wrote = true; return nil })
	})
	inLab(t, func(t *testing.T, l *lab) {
		running := l.start(d, "running", fsm.StartOptions{})
		queued := l.start(d, "queued", fsm.StartOptions{Queue: true})
		delayed := l.start(d, "delayed", fsm.StartOptions{Queue: true, NotBefore: time.Now().Add(48 * time.Hour)})
		for _, h := range []*handle{delayed, queued, running} {
			if err := l.Cancel(t.Context(), h.ID(), "why"); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range []*handle{running, queued, delayed} {
			l.wait(h, bourse.CodeCanceled)
		}
		want := []string{"running: why at go", "running: why at go", "queued: why at go", "queued: why at go", "delayed: why at go", "delayed: why at go"}
		if diff := cmp.Diff(want, trail); diff != "" || !wrote {
			t.Errorf("compensations, with write %t (-want +got):\n%s", wrote, diff)
		}
	}, d)
}

func TestCancelStuck(t *testing.T) {
	d := one("create", func(context.Context, *run) fsm.Outcome { return fsm.Retry(errors.New("no")) }, fsm.StepOptions{Attempts: 1})
	inLab(t, func(t *testing.T, l *lab) {
		h := l.start(d, "", fsm.StartOptions{})
		time.Sleep(time.Second)
		if err := l.Cancel(t.Context(), h.ID(), ""); err != nil {
			t.Fatal(err)
		}
		l.wait(h, bourse.CodeCanceled)
	}, d)
}

// TestCancelBeforeItsTurn checks that a run does not begin while its cancellation is being
// recorded.
func TestCancelBeforeItsTurn(t *testing.T) {
	var gate chan struct{}
	executed := 0
	d := one("create", func(context.Context, *run) fsm.Outcome { executed++; <-gate; return fsm.Done() })
	inLab(t, func(t *testing.T, l *lab) {
		gate = make(chan struct{})
		first := l.start(d, "first", fsm.StartOptions{})
		second := l.start(d, "second", fsm.StartOptions{Queue: true})
		third := l.start(d, "third", fsm.StartOptions{Queue: true})
		close(gate)
		synctest.Wait() // the first run's last record is being written at this point
		if err := l.Cancel(t.Context(), second.ID(), "why"); err != nil {
			t.Fatal(err)
		}
		l.wait(first, "")
		l.wait(second, bourse.CodeCanceled)
		l.wait(third, "")
		if executed != 2 {
			t.Errorf("%d runs executed, want 2", executed)
		}
	}, d)
}
