package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// cold returns an order for a cold task, whose machine runs the words as its program.
func cold(t testing.TB, payload string, words ...string) *bourse.Order {
	t.Helper()
	o := newOrder(t, run(words...), func(o *bourse.Order) {
		o.Config.AutoDestroy = true
		o.Config.Requirements = bourse.Requirements{"slots": {Count: 3}}
		o.Task = &bourse.TaskOrder{Payload: []byte(payload), Timeout: bourse.Duration(5 * time.Second)}
	})
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAColdTask(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		want  string
		text  string
	}{
		"answers":       {[]string{"cat"}, "answered 0 one\ntwo\n", ""},
		"warns":         {[]string{"warn", "oops", "print", "out"}, "answered 0 out\n", ""},
		"fails":         {[]string{"print", "out", "exit", "3"}, "failed 3 out\n", "exit code 3"},
		"is killed":     {[]string{"oom"}, "broken -1 ", "signal 9"},
		"takes forever": {[]string{"run"}, "timeout -1 ", "after its timeout of 5s"},
		"writes a lot":  {[]string{"lines", "0", "150000"}, "broken 0 ", "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				order := cold(t, "one\ntwo\n", c.words...)
				q, err := h.quote(t.Context(), order.ForQuote())
				if err != nil || q.Refusal != nil || q.Takes.Of("slots") != 3 {
					t.Fatalf("quote %+v, %v", q, err)
				}
				got := h.result(t.Context(), order)
				if ended(got) != c.want || !strings.Contains(got.Error, c.text) || got.Machine == "" {
					t.Errorf("got %.60q: %s, want %q: … %s", ended(got), got.Error, c.want, c.text)
				}
				m := h.reaches(got.Machine, bourse.StateDestroyed)
				if len(m.Takes) != 0 || h.slots() != 0 || len(h.openTasks()) != 0 || len(h.kept()) != 0 {
					t.Errorf("left behind: %v, %v, %v", m.Takes, h.openTasks(), h.kept())
				}
				order.HasChosenID = true
				q, err = h.quote(t.Context(), order.ForQuote())
				if fill := q.Fill(); err != nil || fill == nil || fill.Task == nil || fill.Task.End != got.End {
					t.Errorf("quote of the repeated order: %+v, %v", q, err)
				}
				fill, _, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
				if err != nil || !fill.Repeated || ended(fill.Task) != ended(got) {
					t.Errorf("repeated: %+v, %v", fill, err)
				}
				h.verify()
				h.crash()
			})
		})
	}
}

func TestAColdTaskThatCannotBeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		order := cold(t, "", "missing")
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedProgram {
			t.Errorf("refusal %+v, %v", refusal, err)
		}
		if n := h.slots(); n != 0 || len(h.openTasks()) != 0 {
			t.Errorf("left behind: %d slots, tasks %v", n, h.openTasks())
		}
		h.verify()
		h.crash()
	})
}

// A task needs its own record, so it cannot reuse the id of an order whose machine failed to start.
func TestATaskWithTheIDOfAFailedOrder(t *testing.T) {
	for name, order := range map[string]func(*testing.T) *bourse.Order{
		"cold": func(t *testing.T) *bourse.Order { return cold(t, "one", "cat") },
		"warm": func(t *testing.T) *bourse.Order { return call(t, "one", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				defer h.crash()
				failed, order := newOrder(t, run("missing")), order(t)
				if _, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *failed}); err != nil || refusal == nil {
					t.Fatalf("the failed order: refusal %+v, error %v", refusal, err)
				}
				order.ID = failed.ID
				q, err := h.quote(t.Context(), order.ForQuote())
				if err != nil || q.Refusal == nil || q.Refusal.Reason != bourse.RefusedCanceled {
					t.Errorf("quote: refusal %+v, error %v; want %s", q.Refusal, err, bourse.RefusedCanceled)
				}
				if _, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); err != nil || refusal == nil || refusal.Reason != bourse.RefusedCanceled {
					t.Errorf("claim: refusal %+v, error %v; want %s", refusal, err, bourse.RefusedCanceled)
				}
			})
		})
	}
}

// A cold task ends early because its caller disconnects, its order is canceled, or its machine is destroyed. In each
// case, nothing is left behind, and repeating the order returns the result.
func TestAColdTaskEndsEarly(t *testing.T) {
	for name, end := range map[string]func(*host, *bourse.Order, bourse.MachineID, context.CancelFunc) error{
		"left": func(_ *host, _ *bourse.Order, _ bourse.MachineID, leave context.CancelFunc) error {
			leave()
			return nil
		},
		"canceled": func(h *host, o *bourse.Order, _ bourse.MachineID, _ context.CancelFunc) error {
			_, err := h.cancel(h.t.Context(), o.ID)
			return err
		},
		"destroyed": func(h *host, _ *bourse.Order, m bourse.MachineID, _ context.CancelFunc) error {
			return h.machines.Discard(h.t.Context(), m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				order := cold(t, "", "run")
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				replies := make(chan *bourse.Fill, 1)
				go func() {
					fill, _, _ := h.claim(ctx, &bourse.Claim{Order: *order})
					replies <- fill
				}()
				synctest.Wait()
				id := h.tasks()[0].Machine
				if err := end(h, order, id, leave); err != nil {
					t.Error(err)
				}
				if fill := <-replies; fill == nil || fill.Task.OK() || fill.Task.End == "" {
					t.Errorf("reply %+v", fill)
				}
				h.reaches(id, bourse.StateDestroyed)
				if got := h.result(t.Context(), order); got.OK() || h.slots() != 0 || len(h.tasks()) != 0 {
					t.Errorf("repeated: %+v; running: %v", got, h.tasks())
				}
				h.verify()
				h.crash()
			})
		})
	}
}

// Invariants 4 to 7 hold for a cold task if the daemon dies before or after any commit:
// the task continues, its program is started once, and repeating the order returns its
// answer.
func TestADaemonDiesAtEveryCommitOfAColdTask(t *testing.T) {
	coldLife{
		host:   func(t *testing.T) *host { return newHostDown(t, nil) },
		order:  func(t *testing.T) *bourse.Order { return cold(t, "in\n", "sleep", "1s", "cat") },
		within: 3 * time.Second, answer: "answered 0 in\n", commits: 5,
		after: func(h *host, _ bourse.TaskResult) {
			if slots, open := h.slots(), h.openTasks(); slots != 0 || len(open) != 0 || len(h.tasks()) != 0 || len(h.kept()) != 0 {
				h.t.Errorf("left behind: %d slots, tasks %v, machines %v", slots, open, h.kept())
			}
			if starts := h.mem.Starts(); starts != 1 {
				h.t.Errorf("its program was started %d times", starts)
			}
			h.verify()
		},
	}.dieAtEveryCommit(t)
}

// coldLife describes a cold task during which the daemon dies.
type coldLife struct {
	host    func(*testing.T) *host // returns a host whose daemon is not started
	order   func(*testing.T) *bourse.Order
	within  time.Duration // how long the caller waits
	answer  string
	commits uint64 // minimum number of commits
	after   func(*host, bourse.TaskResult)
}

func (l coldLife) dieAtEveryCommit(t *testing.T) {
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		h := l.host(t)
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		got := h.result(t.Context(), l.order(t))
		time.Sleep(time.Minute)
		l.after(h, *got)
		h.crash()
	})
	t.Logf("%d commits", commits)
	if commits < l.commits {
		t.Fatalf("the task makes only %d commits", commits)
	}
	for n := uint64(2); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { l.die(t, stage, n) })
			})
		}
	}
}

func (l coldLife) die(t *testing.T, stage store.FaultStage, n uint64) {
	h, order, firstAnswer := l.host(t), l.order(t), ""
	if h.tryStart(crashAt(stage, n)) == nil {
		ctx, cancel := context.WithTimeout(t.Context(), l.within)
		fill, _, _ := h.claim(ctx, &bourse.Claim{Order: *order})
		if fill != nil && fill.Task.OK() {
			firstAnswer = ended(fill.Task)
		}
		cancel()
		h.crash()
	}
	h.start(nil)
	got := h.result(t.Context(), order)
	if ended(got) != l.answer && (firstAnswer != "" || got.End != bourse.TaskCanceled) {
		t.Errorf("first answer %q, and now %q: %s", firstAnswer, ended(got), got.Error)
	}
	time.Sleep(time.Minute)
	l.after(h, *got)
	h.crash()
}

// After the daemon dies, the next one still enforces a cold task's timeout.
func TestAColdTasksTimeoutAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		order := cold(t, "", "run")
		go func() { _, _, _ = h.Worker.claim(context.WithoutCancel(t.Context()), &bourse.Claim{Order: *order}) }()
		synctest.Wait()
		h.crash()
		h.start(nil)
		time.Sleep(time.Minute)
		if got := h.result(t.Context(), order); got.End != bourse.TaskTimeout || len(h.tasks()) != 0 {
			t.Errorf("result %+v; running: %v", got, h.tasks())
		}
		h.verify()
		h.crash()
	})
}
