package fsmtest

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

func testShareCommits(t *testing.T, w *world) {
	const runs = 64
	var l trail
	d := fsm.Define[string, sum]("create").Step("one", note(&l, "one", nil)).Step("two", note(&l, "two", nil)).Step("three", note(&l, "three", nil))
	w.boot(d)
	handles := make(chan *fsm.Handle[sum], runs)
	for i := range runs {
		go func() {
			h, err := d.Start(w.ctx(), w.engine, "machine/"+strconv.Itoa(i), "x", fsm.StartOptions{})
			if err != nil {
				t.Error(err)
			}
			handles <- h
		}()
	}
	for range runs {
		must[sum](t)((<-handles).Wait(w.ctx()))
	}
	// If the runs did not share commits, they would need four commits each.
	if got, most := w.disk.Commits(), runs*4/2; got > most {
		t.Errorf("%d runs of 3 steps took %d commits, want at most %d", runs, got, most)
	}
	w.halt()
}

func testDelaySurvives(t *testing.T, w *world) {
	var l trail
	d := fsm.Define[string, sum]("create").Step("go", note(&l, "go", nil))
	w.boot(d)
	due := time.Now().Add(time.Minute)
	late := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "late", fsm.StartOptions{NotBefore: due}))
	early := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "early", fsm.StartOptions{Queue: true}))
	must[sum](t)(early.Wait(w.ctx())) // a delayed run does not block other runs
	if got := w.engine.Runs(); len(got) != 1 || got[0].Status != fsm.Delayed {
		t.Errorf("got runs %v, want one delayed run", got)
	}
	w.halt()

	w.boot(d)
	rec := w.end(late.ID())
	if rec.UpdatedAt.Before(due) {
		t.Errorf("run executed at %s, want %s or later", rec.UpdatedAt, due)
	}
	l.want(t, "early go", "late go")
	w.halt()
}

func testBackoffSurvives(t *testing.T, w *world) {
	var l trail
	d := fsm.Define[string, sum]("create").Step("go", func(_ context.Context, r *fsm.Run[string, sum]) fsm.Outcome {
		l.add("attempt " + strconv.Itoa(r.Attempt))
		r.Result.Steps = append(r.Result.Steps, "attempt") // dropped if the attempt fails
		if r.Attempt == 0 {
			return fsm.RetryAfter(time.Minute, errors.New("not yet"))
		}
		return fsm.Done()
	})
	w.boot(d)
	began := time.Now()
	h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "", fsm.StartOptions{}))
	time.Sleep(time.Second)
	w.halt()

	w.boot(d)
	rec := w.end(h.ID())
	if took := rec.UpdatedAt.Sub(began); took < time.Minute || took > 2*time.Minute {
		t.Errorf("run ended after %s, want after one to two minutes", took)
	}
	if want := `{"Steps":["attempt"]}`; string(rec.Result) != want {
		t.Errorf("got result %s, want %s", rec.Result, want)
	}
	l.want(t, "attempt 0", "attempt 1")
	w.halt()
}

func testParked(t *testing.T, w *world) {
	var l trail
	gone := fsm.Define[string, sum]("gone").Step("go", note(&l, "gone", make(chan struct{})))
	old := fsm.Define[string, sum]("changed").Step("old step", note(&l, "old", make(chan struct{})))
	w.boot(gone, old)
	a := must[*fsm.Handle[sum]](t)(gone.Start(w.ctx(), w.engine, "machine/1", "a", fsm.StartOptions{}))
	b := must[*fsm.Handle[sum]](t)(old.Start(w.ctx(), w.engine, "machine/2", "b", fsm.StartOptions{}))
	time.Sleep(time.Second)
	w.halt()
	l.take()

	now := fsm.Define[string, sum]("changed").Step("new step", note(&l, "new", nil))
	other := fsm.Define[string, sum]("other").Step("go", note(&l, "other", nil))
	w.boot(now, other)
	for _, rec := range w.engine.Runs() {
		if rec.Status != fsm.Parked || rec.Error == "" {
			t.Errorf("run of %s: got status %s and error %q, want parked and a reason", rec.Definition, rec.Status, rec.Error)
		}
	}
	for _, id := range []string{a.ID(), b.ID()} {
		if err := w.engine.Skip(w.ctx(), id); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("skip of a parked run: got %v, want code failed_precondition", err)
		}
	}
	blocked := must[*fsm.Handle[sum]](t)(other.Start(w.ctx(), w.engine, "machine/1", "blocked", fsm.StartOptions{}))
	free := must[*fsm.Handle[sum]](t)(other.Start(w.ctx(), w.engine, "machine/3", "free", fsm.StartOptions{}))
	must[sum](t)(free.Wait(w.ctx()))
	time.Sleep(time.Minute)
	l.want(t, "free other")
	w.halt()

	open := make(chan struct{})
	close(open) // simulates the return to a release that knows these runs
	gone = fsm.Define[string, sum]("gone").Step("go", note(&l, "gone", open))
	old = fsm.Define[string, sum]("changed").Step("old step", note(&l, "old", open))
	w.boot(gone, old, other)
	for _, id := range []string{a.ID(), b.ID(), blocked.ID()} {
		if rec := w.end(id); rec.Status != fsm.Succeeded {
			t.Errorf("run of %s: got %s, want done", rec.Definition, rec.Status)
		}
	}
	w.halt()
}

func testStartUndone(t *testing.T, w *world) {
	var l trail
	d := fsm.Define[string, sum]("create").Step("go", note(&l, "go", nil))
	w.boot(d)
	refusal := errors.New("no room")
	_, err := d.Start(w.ctx(), w.engine, "machine/1", "a", fsm.StartOptions{Write: func(fsm.Tx) error { return refusal }})
	if !errors.Is(err, refusal) {
		t.Errorf("start: got %v, want the write's own error", err)
	}
	if got := w.engine.Runs(); len(got) != 0 {
		t.Errorf("got runs %v, want none", got)
	}
	w.halt()
	w.boot(d)
	h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "b", fsm.StartOptions{}))
	must[sum](t)(h.Wait(w.ctx()))
	l.want(t, "b go")
	w.halt()
}
