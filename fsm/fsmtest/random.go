package fsmtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// op is one operation of a plan. Kind determines which fields are used.
type op struct {
	Kind     string // start, cancel, sleep, restart
	Def      int
	Resource string
	Script   script
	Options  fsm.StartOptions
	Delay    time.Duration
	Target   int  // for cancel: index of the run, among those started so far
	Kill     int  // for restart: commit at which the new process dies
	After    bool // for restart: whether the process dies after the commit is durable, rather than before
}

// started is a run that a plan has started.
type started struct {
	id         string
	definition string
	script     script
	tried      bool // whether a cancellation was attempted
	canceled   bool // whether a cancellation was acknowledged
}

// play executes a plan on w and checks how each run ended.
func play(w *world, plan []op) error {
	c := newChecker()
	w.observe = c.learn
	boot := func(kill int, after bool) {
		w.disk.KillAt(kill, after)
		c.restarted()
		w.open(c.definitions()...)
		records, err := w.journal.Unfinished()
		if err != nil {
			w.t.Error(err)
		}
		for _, rec := range records {
			c.learn(rec)
		}
		w.run()
	}
	boot(0, false)
	var runs []*started
	for _, o := range plan {
		switch o.Kind {
		case "sleep":
			time.Sleep(o.Delay)
		case "restart":
			w.halt()
			boot(o.Kill, o.After)
		case "cancel":
			if len(runs) > 0 {
				w.cancel(runs[o.Target%len(runs)])
			}
		case "start":
			if s := w.startScripted(c, o); s != nil {
				runs = append(runs, s)
			}
		}
	}
	w.halt()
	boot(0, false)
	w.settle()
	for range 2 { // the second time, after a restart
		for _, s := range runs {
			if err := s.check(w, c); err != nil {
				return err
			}
		}
		w.halt()
		boot(0, false)
	}
	w.halt()
	return c.err()
}

// settle waits until all runs have ended. It retries stuck runs.
func (w *world) settle() {
	for range 10_000 {
		records := w.engine.Runs()
		if len(records) == 0 {
			return
		}
		for _, rec := range records {
			if rec.Status == fsm.Stuck {
				_ = w.engine.Retry(w.ctx(), rec.ID) // the run may not be stuck anymore
			}
		}
		time.Sleep(time.Second)
	}
	w.t.Errorf("got unfinished runs %v, want none", w.engine.Runs())
}

func (w *world) startScripted(c *checker, o op) *started {
	d := c.defs[o.Def%len(c.defs)]
	if o.Delay > 0 {
		o.Options.NotBefore = time.Now().Add(o.Delay)
	}
	h, err := d.Start(w.ctx(), w.engine, o.Resource, o.Script, o.Options)
	if err != nil {
		if code := bourse.CodeOf(err); code != bourse.CodeUnavailable && code != bourse.CodeTimeout && code != bourse.CodeRateLimited {
			w.t.Errorf("start: %v", err)
		}
		return nil
	}
	if h.Joined() { // the run is in the list already, unless its start was interrupted by a crash
		return nil
	}
	return &started{id: h.ID(), definition: d.Name(), script: o.Script}
}

func (w *world) cancel(s *started) {
	s.tried = true
	switch err := w.engine.Cancel(w.ctx(), s.id, "test"); bourse.CodeOf(err) {
	case "":
		s.canceled = true
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeFailedPrecondition, bourse.CodeNotFound:
	default:
		w.t.Errorf("cancel: %v", err)
	}
}

func (s *started) check(w *world, c *checker) error {
	rec := w.end(s.id)
	var got sum
	if len(rec.Result) > 0 {
		if err := json.Unmarshal(rec.Result, &got); err != nil {
			return err
		}
	}
	if rec.Status == fsm.Canceled {
		if !s.tried {
			return fmt.Errorf("run %s was canceled, but no cancellation was requested", s.id)
		}
		if s.definition == "b" && (len(got.Steps) == 0 || got.Steps[len(got.Steps)-1] != "cancel") {
			return fmt.Errorf("run %s was canceled without its compensation: got steps %v", s.id, got.Steps)
		}
		return nil
	}
	status, steps := c.want(s.definition, s.script)
	switch {
	case s.canceled:
		return fmt.Errorf("run %s: got status %s, want canceled, because the cancellation was acknowledged", s.id, rec.Status)
	case rec.Status != status || !slices.Equal(got.Steps, steps):
		return fmt.Errorf("run %s of %s: got %s with steps %v, want %s with %v", s.id, s.definition, rec.Status, got.Steps, status, steps)
	case status == fsm.Failed && rec.Code != string(bourse.CodeConflict):
		return fmt.Errorf("run %s: got code %q, want %q", s.id, rec.Code, bourse.CodeConflict)
	}
	return nil
}

func drawPlan(t *rapid.T) []op {
	drawAct := rapid.Custom(func(t *rapid.T) act {
		return act{
			Fail:   rapid.IntRange(0, 5).Draw(t, "fail") % 5 % 4,
			Sleep:  rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond, 2 * time.Second}).Draw(t, "sleep"),
			Abort:  rapid.IntRange(0, 9).Draw(t, "abort") == 9,
			Finish: rapid.IntRange(0, 9).Draw(t, "finish") == 9,
		}
	})
	drawOp := rapid.Custom(func(t *rapid.T) op {
		o := op{Kind: rapid.SampledFrom([]string{"start", "start", "start", "start", "cancel", "sleep", "restart"}).Draw(t, "kind")}
		switch o.Kind {
		case "start":
			o.Def = rapid.IntRange(0, 2).Draw(t, "def")
			o.Resource = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "resource")
			o.Script = rapid.MapOfN(rapid.SampledFrom([]string{"a1", "a2", "a3", "b1", "b2", "c1"}), drawAct, 0, 4).Draw(t, "script")
			o.Delay = rapid.SampledFrom([]time.Duration{0, 0, 100 * time.Millisecond, 3 * time.Second}).Draw(t, "delay")
			o.Options.Queue = rapid.Bool().Draw(t, "queue")
		case "cancel":
			o.Target = rapid.IntRange(0, 20).Draw(t, "target")
		case "sleep":
			o.Delay = rapid.SampledFrom([]time.Duration{time.Millisecond, 40 * time.Millisecond, time.Second}).Draw(t, "for")
		case "restart":
			o.Kill, o.After = rapid.IntRange(0, 12).Draw(t, "kill"), rapid.Bool().Draw(t, "after")
		}
		return o
	})
	return rapid.SliceOfN(drawOp, 1, 25).Draw(t, "plan")
}

// testRandom executes random plans of starts, cancellations, restarts and crashes.
func testRandom(t *testing.T, open func(testing.TB) Disk) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		var err error
		synctest.Test(t, func(t *testing.T) { err = play(&world{t: t, disk: open(t)}, plan) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// testCrashEverywhere executes one plan repeatedly. It kills the process at each commit: once
// immediately before the commit becomes durable, and once immediately after.
func testCrashEverywhere(t *testing.T, w *world) {
	plan := []op{
		{Kind: "start", Def: 0, Resource: "x", Script: script{"a2": {Fail: 1}}},
		{Kind: "start", Def: 1, Resource: "x", Script: script{"b1": {Sleep: time.Second}}},
		{Kind: "start", Def: 2, Resource: "x"},
		{Kind: "start", Def: 2, Resource: "y", Delay: time.Second},
		{Kind: "start", Def: 0, Resource: "z", Script: script{"a2": {Abort: true}}},
		{Kind: "cancel", Target: 2},
		{Kind: "sleep", Delay: 500 * time.Millisecond},
		{Kind: "cancel", Target: 1},
		{Kind: "sleep", Delay: time.Minute},
	}
	if err := play(w, append([]op{{Kind: "restart"}}, plan...)); err != nil {
		t.Fatalf("without a crash: %v", err)
	}
	for n := 1; ; n++ {
		for _, after := range []bool{false, true} {
			disk := &counted{Disk: w.fresh(t)}
			err := play(&world{t: t, disk: disk}, append([]op{{Kind: "restart", Kill: n, After: after}}, plan...))
			if err != nil {
				t.Fatalf("killed at commit %d (after: %t): %v", n, after, err)
			}
			if disk.most < n {
				if n < 15 {
					t.Errorf("got %d commits, want at least 15", disk.most)
				}
				return
			}
		}
	}
}

// counted is a Disk that records how many commits the killed process made.
type counted struct {
	Disk
	killing bool
	most    int
}

func (d *counted) KillAt(n int, after bool) {
	d.killing = n > 0
	d.Disk.KillAt(n, after)
}

func (d *counted) Close(t testing.TB) {
	if d.killing {
		d.most = d.Commits()
	}
	d.Disk.Close(t)
}
