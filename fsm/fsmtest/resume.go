package fsmtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// trail records the steps that were executed, in order.
type trail struct {
	mu    sync.Mutex
	notes []string
}

func (l *trail) add(note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, note)
}

// take returns the recorded steps and clears the record.
func (l *trail) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	notes := l.notes
	l.notes = nil
	return notes
}

func (l *trail) want(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.take()); diff != "" {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
}

// sum is the result of the suite's runs: the names of the finished steps.
type sum struct{ Steps []string }

// note returns a step that records its execution and then completes. If block is not nil, the step
// waits until block is closed or the engine stops.
func note(l *trail, name string, block <-chan struct{}) fsm.StepFunc[string, sum] {
	return func(ctx context.Context, r *fsm.Run[string, sum]) fsm.Outcome {
		l.add(r.Request + " " + name)
		if block != nil {
			select {
			case <-block:
			case <-ctx.Done():
				return fsm.Retry(ctx.Err())
			}
		}
		r.Result.Steps = append(r.Result.Steps, name)
		return fsm.Done()
	}
}

func testOwnRecord(t *testing.T, w *world) {
	var l trail
	gate := make(chan struct{})
	def := func(block <-chan struct{}) *fsm.Def[string, sum] {
		return fsm.Define[string, sum]("create").Step("one", note(&l, "one", nil)).Step("two", note(&l, "two", block)).Step("three", note(&l, "three", nil))
	}
	open := make(chan struct{})
	close(open)
	d := def(open)
	w.boot(d)
	for _, req := range []string{"a", "b"} { // earlier runs of the same definition and resource, which were completed
		h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", req, fsm.StartOptions{}))
		must[sum](t)(h.Wait(w.ctx()))
	}
	w.halt()

	d = def(gate)
	w.boot(d)
	h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "c", fsm.StartOptions{}))
	time.Sleep(time.Second) // virtual time; the run blocks in its second step
	l.take()
	w.halt()

	d = def(open)
	w.boot(d)
	h = must[*fsm.Handle[sum]](t)(d.Find(w.engine, h.ID()))
	got := must[sum](t)(h.Wait(w.ctx()))
	l.want(t, "c two", "c three")
	if diff := cmp.Diff(sum{[]string{"one", "two", "three"}}, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	w.halt()
}

func testOwnDefinition(t *testing.T, w *world) {
	var l trail
	defs := func(block <-chan struct{}) (a, b *fsm.Def[string, sum]) {
		// The definitions' names have a common prefix, and their steps have the same name.
		a = fsm.Define[string, sum]("machine").Step("go", note(&l, "machine", block))
		b = fsm.Define[string, sum]("machine.stop").Step("go", note(&l, "machine.stop", block))
		return a, b
	}
	a, b := defs(make(chan struct{}))
	w.boot(a, b)
	var ids []string
	for _, resource := range []string{"x", "stop.x"} {
		for _, d := range []*fsm.Def[string, sum]{a, b} {
			h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, resource, d.Name()+" on "+resource+":", fsm.StartOptions{}))
			ids = append(ids, h.ID())
		}
	}
	time.Sleep(time.Second)
	w.halt()
	l.take()

	open := make(chan struct{})
	close(open)
	a, b = defs(open)
	w.boot(a, b)
	for _, id := range ids {
		if rec := w.end(id); rec.Status != fsm.Succeeded {
			t.Errorf("run of %s: got %s (%s), want done", rec.Definition, rec.Status, rec.Error)
		}
	}
	got := map[string]bool{}
	for _, n := range l.take() {
		got[n] = true
	}
	want := map[string]bool{
		"machine on x: machine": true, "machine.stop on x: machine.stop": true,
		"machine on stop.x: machine": true, "machine.stop on stop.x: machine.stop": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
	w.halt()
}

func testQueueSurvives(t *testing.T, w *world) {
	var l trail
	gate := make(chan struct{})
	d := fsm.Define[string, sum]("create").Step("go", note(&l, "go", gate))
	w.boot(d)
	var ids []string
	for _, req := range []string{"a", "b", "c", "d", "e"} {
		h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", req, fsm.StartOptions{Queue: true}))
		ids = append(ids, h.ID())
	}
	time.Sleep(time.Second)
	l.want(t, "a go")
	w.halt()

	close(gate)
	w.boot(d)
	for _, id := range ids {
		w.end(id)
	}
	l.want(t, "a go", "b go", "c go", "d go", "e go")
	w.halt()
}

func testCancelWaiting(t *testing.T, w *world) {
	var l trail
	gate := make(chan struct{})
	d := fsm.Define[string, sum]("create").Step("go", note(&l, "go", gate))
	w.boot(d)
	start := func(req string, o fsm.StartOptions) string {
		o.Queue = true
		return must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", req, o)).ID()
	}
	running := start("running", fsm.StartOptions{})
	queued := start("queued", fsm.StartOptions{})
	delayed := start("delayed", fsm.StartOptions{NotBefore: time.Now().Add(time.Minute)})
	for _, id := range []string{queued, delayed} {
		if err := w.engine.Cancel(w.ctx(), id, "not wanted"); err != nil {
			t.Fatal(err)
		}
		if rec := w.end(id); rec.Status != fsm.Canceled || rec.Error != "not wanted" {
			t.Errorf("canceled run: got status %s and error %q, want canceled and %q", rec.Status, rec.Error, "not wanted")
		}
	}
	w.halt()

	close(gate)
	w.boot(d)
	w.end(running)
	time.Sleep(2 * time.Minute)
	for _, id := range []string{queued, delayed} {
		h := must[*fsm.Handle[sum]](t)(d.Find(w.engine, id))
		if _, err := h.Wait(w.ctx()); bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("after the restart: got %v, want code canceled", err)
		}
	}
	l.want(t, "running go", "running go")
	w.halt()
}

func testFailedStaysFailed(t *testing.T, w *world) {
	d := fsm.Define[string, sum]("create").Step("go", func(context.Context, *fsm.Run[string, sum]) fsm.Outcome {
		return fsm.Abort(bourse.Errorf(bourse.CodeInsufficient, "memory: wanted 2, free 1"))
	})
	w.boot(d)
	h := must[*fsm.Handle[sum]](t)(d.Start(w.ctx(), w.engine, "machine/1", "a", fsm.StartOptions{}))
	check := func(when string) {
		t.Helper()
		_, err := h.Wait(w.ctx())
		if bourse.CodeOf(err) != bourse.CodeInsufficient || bourse.MessageOf(err) != "memory: wanted 2, free 1" {
			t.Errorf("%s: got %v (code %s), want the error passed to Abort", when, err, bourse.CodeOf(err))
		}
	}
	check("before the restart")
	for range 2 {
		w.halt()
		w.boot(d)
		h = must[*fsm.Handle[sum]](t)(d.Find(w.engine, h.ID()))
		check("after a restart")
	}
	w.halt()
}
