package worker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// coldImage returns an order for a cold task whose machine runs the rig's image.
func coldImage(t testing.TB, payload string, words ...string) *bourse.Order {
	t.Helper()
	o := cold(t, payload, words...)
	o.Config.Image = rigImage
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

// nothingLeft checks that ended tasks have left nothing on the host.
func (h *host) nothingLeft() {
	h.t.Helper()
	slots, open := h.slots(), h.openTasks()
	if slots != 0 || len(open) != 0 || len(h.tasks()) != 0 || len(h.kept()) != 0 || len(h.rig.network.attached()) != 0 {
		h.t.Errorf("left behind: %d slots, tasks %v, machines %v, networks of %v", slots, open, h.kept(), h.rig.network.attached())
	}
	h.verify()
}

// A cold task pulls its image first. The pull does not count toward the task's timeout,
// which is shorter than the pull here.
func TestAColdTaskOfAnImage(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		want  string
		text  string
		took  time.Duration
	}{
		"answers":        {[]string{"cat"}, "answered 0 one\ntwo", "", 20 * time.Second},
		"fails":          {[]string{"cat", "exit", "3"}, "failed 3 one\ntwo", "exit code 3", 20 * time.Second},
		"takes its time": {[]string{"sleep", "4s", "cat"}, "answered 0 one\ntwo", "", 24 * time.Second},
		"takes forever":  {[]string{"run"}, "timeout -1 ", "after its timeout of 5s", 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRigged(t, newRig)
				spy := h.withSpy()
				h.rig.images.takes = 20 * time.Second
				h.start(nil)
				order := coldImage(t, "one\ntwo", c.words...)
				if q, err := h.quote(t.Context(), order.ForQuote()); err != nil || q.Refusal != nil {
					t.Fatalf("quote %+v, %v", q, err)
				}
				got := h.result(t.Context(), order)
				if ended(got) != c.want || !strings.Contains(got.Error, c.text) || got.Took.Truncate(10*time.Millisecond) != c.took {
					t.Errorf("got %.60q after %s: %s, want %q after %s: … %s", ended(got), got.Took, got.Error, c.want, c.took, c.text)
				}
				if task := spy.tasks[0]; string(task.Stdin) != "one\ntwo" || !slices.Equal(task.Command, c.words) {
					t.Errorf("the driver received %q, stdin %q", task.Command, task.Stdin)
				}
				h.reaches(got.Machine, bourse.StateDestroyed)
				fill, _, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
				if err != nil || !fill.Repeated || ended(fill.Task) != ended(got) || len(spy.tasks) != 1 {
					t.Errorf("repeated: %+v, %v", fill, err)
				}
				if gone, err := h.rig.images.Prune(t.Context()); err != nil || len(gone) != 1 {
					t.Errorf("the image is still in use: %v, %v", gone, err)
				}
				h.nothingLeft()
				h.crash()
			})
		})
	}
}

func TestAColdTaskOfNoImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		order := coldImage(t, "", "cat")
		order.Config.Image = "example.com/nothing"
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedNoImage || refusal.Resource != order.Config.Image {
			t.Errorf("refusal %+v, %v", refusal, err)
		}
		order = coldImage(t, "", "cat")
		order.Config.Image = bourse.ImagePull
		if err := order.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), "poller") {
			t.Errorf("a poller's task: %v", err)
		}
		h.nothingLeft()
		h.crash()
	})
}

// The caller of a cold task disconnects while the image is being pulled.
func TestAColdTaskIsCanceledDuringItsPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRigged(t, newRig)
		h.rig.images.takes = time.Hour
		h.start(nil)
		order := coldImage(t, "", "cat")
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		fill, _, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err != nil || fill == nil || fill.Task.End != bourse.TaskCanceled {
			t.Fatalf("reply: %+v, %v", fill, err)
		}
		h.reaches(fill.Task.Machine, bourse.StateDestroyed)
		if got := h.result(t.Context(), order); got.End != bourse.TaskCanceled {
			t.Errorf("again: %+v", got)
		}
		h.nothingLeft()
		h.crash()
	})
}

// The daemon dies while a cold task's image is being pulled, and the next daemon cannot
// pull it. If the caller repeats the order, it is refused.
func TestAColdTasksImageBecomesUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRigged(t, newRig)
		h.rig.images.takes = time.Hour
		h.start(nil)
		order := coldImage(t, "", "cat")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() { _, _, _ = h.Worker.claim(ctx, &bourse.Claim{Order: *order}) }()
		synctest.Wait()
		h.crash()
		leave() // the caller disconnects
		h.rig.images.mu.Lock()
		clear(h.rig.images.registry)
		h.rig.images.mu.Unlock()
		h.start(nil)
		fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || fill != nil || refusal == nil {
			t.Errorf("repeated: %+v, %+v, %v", fill, refusal, err)
		}
		time.Sleep(time.Minute)
		h.nothingLeft()
		h.crash()
	})
}

// Invariants 4 to 7 hold for cold tasks with an image if the daemon dies before or
// after any commit.
func TestADaemonDiesAtEveryCommitOfAColdTaskOfAnImage(t *testing.T) {
	coldLife{
		host:   func(t *testing.T) *host { return newRigged(t, newRig) },
		order:  func(t *testing.T) *bourse.Order { return coldImage(t, "in", "sleep", "1s", "cat") },
		within: 4 * time.Second, answer: "answered 0 in", commits: 7,
		after: func(h *host, got bourse.TaskResult) {
			if starts := h.rig.containers.Starts(); starts > 1 || starts == 0 && got.OK() {
				h.t.Errorf("its program was started %d times", starts)
			}
			h.nothingLeft()
		},
	}.dieAtEveryCommit(t)
}
