package fsm_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/fsm/fsmtest"
)

func TestStepsShareTheResult(t *testing.T) {
	add := func(_ context.Context, r *run) fsm.Outcome {
		*r.Result = append(*r.Result, r.Request+" "+r.Step)
		return fsm.Done()
	}
	d := fsm.Define[string, []string]("create").Step("a", add).Step("b", add).
		Step("c", func(context.Context, *run) fsm.Outcome { return fsm.Finish() }).Step("d", add)
	inLab(t, func(t *testing.T, l *lab) {
		got, err := l.start(d, "x", fsm.StartOptions{}).Wait(t.Context())
		if diff := cmp.Diff([]string{"x a", "x b"}, got); err != nil || diff != "" {
			t.Errorf("result: %v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff([]fsm.Status{fsm.Running, fsm.Running, fsm.Running, fsm.Succeeded}, l.seen); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	}, d)
}

func TestDeadlineThenStuckThenRetryOrSkip(t *testing.T) {
	var fixed atomic.Bool
	d := fsm.Define[string, []string]("create").Step("go", func(ctx context.Context, r *run) fsm.Outcome {
		if fixed.Load() {
			return fsm.Done()
		}
		return hang(ctx, r)
	}, fsm.StepOptions{Timeout: time.Second, Attempts: 3, Backoff: time.Second, MaxBackoff: 2 * time.Second}).Step("after", done)
	inLab(t, func(t *testing.T, l *lab) {
		began := time.Now()
		h := l.start(d, "", fsm.StartOptions{})
		for l.status(h) != fsm.Stuck {
			if time.Since(began) > time.Minute {
				t.Fatalf("status after a minute: %s", l.status(h))
			}
			time.Sleep(10 * time.Millisecond)
		}
		// Three attempts take 1 s each, with pauses of 0.5 to 1 s and 1 to 2 s.
		if took := time.Since(began); took < 4500*time.Millisecond || took > 6100*time.Millisecond {
			t.Errorf("stuck after %s", took)
		}
		if rec := l.Runs()[0]; rec.Code != string(bourse.CodeTimeout) || !strings.Contains(rec.Error, "took longer than 1s") {
			t.Errorf("stuck with %s %q", rec.Code, rec.Error)
		}
		waiting := l.start(d, "waiting", fsm.StartOptions{Queue: true})
		time.Sleep(time.Hour)
		if got := l.status(waiting); got != fsm.Queued {
			t.Errorf("run behind a stuck one: %s, want queued", got)
		}
		fixed.Store(true)
		if err := l.Skip(t.Context(), h.ID()); err != nil {
			t.Fatal(err)
		}
		l.wait(h, "")
		l.wait(waiting, "")
		if err := l.Retry(t.Context(), h.ID()); bourse.CodeOf(err) != bourse.CodeFailedPrecondition && bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("retry of an ended run: %v", err)
		}

		fixed.Store(false)
		h = l.start(d, "", fsm.StartOptions{})
		time.Sleep(time.Minute)
		fixed.Store(true)
		if err := l.Retry(t.Context(), h.ID()); err != nil {
			t.Fatal(err)
		}
		l.wait(h, "")
	}, d)
}

func TestPanicAborts(t *testing.T) {
	d := one("create", func(context.Context, *run) fsm.Outcome { panic("oh no") })
	inLab(t, func(t *testing.T, l *lab) {
		h := l.start(d, "", fsm.StartOptions{})
		err := l.waitErr(h, bourse.CodeInternal)
		if bourse.MessageOf(err) != "internal error" || !strings.Contains(err.Error(), "oh no") {
			t.Errorf("error %q, shown as %q", err, bourse.MessageOf(err))
		}
		synctest.Wait() // the run may still be writing to its log
		for _, want := range []string{"step panicked", "engine_test.go", "run=" + h.ID(), "definition=create", "step=go", "resource=machine/1"} {
			if !strings.Contains(l.log.String(), want) {
				t.Errorf("the log does not contain %q:\n%s", want, l.log.String())
			}
		}
	}, d)
}

func TestNoOutcomeAborts(t *testing.T) {
	d := one("create", func(context.Context, *run) fsm.Outcome { return fsm.Outcome{} })
	inLab(t, func(_ *testing.T, l *lab) { l.wait(l.start(d, "", fsm.StartOptions{}), bourse.CodeInternal) }, d)
}

func TestRefusedWriteIsTriedAgain(t *testing.T) {
	calls, executed := 0, 0
	d := one("create", func(context.Context, *run) fsm.Outcome {
		executed++
		return fsm.Done(func(fsm.Tx) error {
			if calls++; calls < 3 {
				panic("a write that panics counts as failed")
			}
			return nil
		})
	})
	inLab(t, func(t *testing.T, l *lab) {
		l.wait(l.start(d, "", fsm.StartOptions{}), "")
		if executed != 3 {
			t.Errorf("executed %d times, want 3", executed)
		}
	}, d)
}

func TestSecondStartJoins(t *testing.T) {
	var gate chan struct{}
	block := func(context.Context, *run) fsm.Outcome { <-gate; return fsm.Done() }
	a, b := one("a", block), one("b", block)
	inLab(t, func(t *testing.T, l *lab) {
		gate = make(chan struct{}) // the channel must belong to the bubble
		first := l.start(a, "1", fsm.StartOptions{})
		second := l.start(a, "2", fsm.StartOptions{Write: func(fsm.Tx) error { t.Error("the write of a joined start ran"); return nil }})
		if first.Joined() || !second.Joined() || first.ID() != second.ID() {
			t.Errorf("ids %s and %s, joined %t and %t", first.ID(), second.ID(), first.Joined(), second.Joined())
		}
		other := l.start(b, "3", fsm.StartOptions{})
		own := l.start(a, "4", fsm.StartOptions{Queue: true})
		l.start(a, "5", fsm.StartOptions{Queue: true})
		if other.Joined() || own.Joined() {
			t.Error("joined a run of another definition, or joined a run although Queue was set")
		}
		if _, err := a.Start(t.Context(), l.Engine, "machine/1", "6", fsm.StartOptions{Queue: true}); bourse.CodeOf(err) != bourse.CodeRateLimited {
			t.Errorf("start on a full queue: %v", err)
		}
		if _, err := a.Start(t.Context(), l.Engine, "machine/1\x00x", "7", fsm.StartOptions{}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("start on a resource with a zero byte: %v", err)
		}
		close(gate)
		l.wait(own, "")
	}, a, b)
}

// TestJoinOfARefusedStart checks that a Start that would join another run starts its own run if the
// other run's record is refused.
func TestJoinOfARefusedStart(t *testing.T) {
	d := one("create", done)
	refusal := errors.New("refused")
	inLab(t, func(t *testing.T, l *lab) {
		l.disk.Latency = time.Second
		other := one("other", done)
		l.Register(other)
		go func() { _, _ = other.Start(t.Context(), l.Engine, "busy", "", fsm.StartOptions{}) }() // keeps the journal busy
		synctest.Wait()
		refused := make(chan error, 1)
		go func() {
			_, err := d.Start(t.Context(), l.Engine, "machine/1", "", fsm.StartOptions{Write: func(fsm.Tx) error { return refusal }})
			refused <- err
		}()
		synctest.Wait()
		h := l.start(d, "", fsm.StartOptions{})
		if err := <-refused; !errors.Is(err, refusal) {
			t.Errorf("first start: %v", err)
		}
		if h.Joined() {
			t.Error("joined a run that was never recorded")
		}
		l.wait(h, "")
	}, d)
}

func TestAppliedDoesNotWaitForTheDisk(t *testing.T) {
	d := one("create", func(_ context.Context, r *run) fsm.Outcome { *r.Result = []string{"x"}; return fsm.Done() })
	inLab(t, func(t *testing.T, l *lab) {
		h := l.start(d, "", fsm.StartOptions{})
		began := time.Now()
		got, err := h.Applied(t.Context())
		if took := time.Since(began); err != nil || took != 0 || len(got) != 1 {
			t.Errorf("applied: %v %v after %s, want immediately", got, err, took)
		}
		again := l.start(d, "", fsm.StartOptions{}) // Find and Runs report the first run as ended
		if again.Joined() {
			t.Error("joined a run whose end had been reported")
		}
		l.wait(h, "")
		if took := time.Since(began); took < time.Millisecond {
			t.Errorf("durable after %s, before the disk wrote the record", took)
		}
	}, d)
}

// TestRunContinuesIfItsEndIsRefused checks that a run continues if the journal refuses the record of its end.
func TestRunContinuesIfItsEndIsRefused(t *testing.T) {
	refusals := 1
	d := one("create", func(context.Context, *run) fsm.Outcome {
		return fsm.Done(func(fsm.Tx) error {
			if refusals > 0 {
				refusals--
				return errors.New("not yet")
			}
			return nil
		})
	})
	inLab(t, func(t *testing.T, l *lab) {
		h := l.start(d, "", fsm.StartOptions{})
		if _, err := h.Applied(t.Context()); err != nil || refusals != 0 {
			t.Errorf("applied: %v with %d refusals left", err, refusals)
		}
		l.wait(h, "")
	}, d)
}

func TestJournalFailsForAWhile(t *testing.T) {
	executed := 0
	d := one("create", func(context.Context, *run) fsm.Outcome { executed++; return fsm.Done() })
	inLab(t, func(t *testing.T, l *lab) {
		full := bourse.Errorf(bourse.CodeUnavailable, "disk full")
		l.disk.Latency = time.Second
		h := l.start(d, "", fsm.StartOptions{})
		l.disk.Break(full) // the step is done, and its record is being written
		if _, err := d.Start(t.Context(), l.Engine, "machine/2", "", fsm.StartOptions{}); !errors.Is(err, full) {
			t.Errorf("start of a run on a full disk: %v", err)
		}
		time.Sleep(time.Minute)
		l.disk.Break(nil)
		l.wait(h, "")
		if executed != 1 {
			t.Errorf("the step executed %d times, want once", executed)
		}
	}, d)
}

// TestFullDiskIsLoggedOncePerMinute checks that while the disk is full, only one line per minute is logged about
// finished steps. The line contains the number of failures that were not logged.
func TestFullDiskIsLoggedOncePerMinute(t *testing.T) {
	d := one("create", done)
	inLab(t, func(t *testing.T, l *lab) {
		l.disk.Latency = time.Second
		h := l.start(d, "", fsm.StartOptions{})
		l.disk.Break(bourse.Errorf(bourse.CodeUnavailable, "disk full"))
		time.Sleep(3*time.Minute - 30*time.Second)
		l.disk.Break(nil)
		l.wait(h, "")
		l.stop() // the run may still be writing to its log
		if got := strings.Count(l.log.String(), "record finished step failed"); got != 3 || !strings.Contains(l.log.String(), "not_logged=1") {
			t.Errorf("%d lines, want 3 with the number of unlogged failures:\n%s", got, &l.log)
		}
	}, d)
}

func TestStartBeforeRunAndAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := one("create", done)
		e := fsm.New(fsm.Config{Journal: (&fsmtest.Memory{}).Journal()})
		e.Register(d)
		h, err := d.Start(t.Context(), e, "machine/1", "", fsm.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := e.Runs(); len(got) != 1 {
			t.Fatalf("runs %v, want one that waits for the engine to start", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		if _, err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		late, err := d.Start(t.Context(), e, "machine/1", "", fsm.StartOptions{NotBefore: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := late.Wait(t.Context()); bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("wait on a stopped engine: %v", err)
		}
		if _, err := d.Start(t.Context(), e, "machine/1", "", fsm.StartOptions{}); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("start on a stopped engine: %v", err)
		}
		if err := e.Cancel(t.Context(), late.ID(), ""); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("cancel on a stopped engine: %v", err)
		}
		if err := e.Run(t.Context()); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("second run of an engine: %v", err)
		}
	})
}

// TestInterruptedStepHasNotFailed checks that a step that is interrupted because the engine stops does not count as
// failed, whatever it returns.
func TestInterruptedStepHasNotFailed(t *testing.T) {
	d := one("create", func(ctx context.Context, _ *run) fsm.Outcome {
		<-ctx.Done()
		return fsm.Abort(ctx.Err())
	})
	inLab(t, func(t *testing.T, l *lab) {
		h := l.start(d, "", fsm.StartOptions{})
		l.stop()
		rec, ok, err := l.disk.Journal().Run(h.ID())
		if err != nil || !ok || rec.Status != fsm.Running || rec.Attempt != 0 {
			t.Errorf("after the stop: %+v %t %v", rec, ok, err)
		}
	}, d)
}
