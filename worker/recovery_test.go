package worker

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Invariant 1: only the state on the worker's disk counts. A claim based on outdated
// information is refused according to the current state, and a worker that has lost
// everything except its disk returns the same records.
func TestInvariant1OwnTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := h.place(run("run"))
		q, err := h.quote(t.Context(), newOrder(t, func(o *bourse.Order) { o.Config.Guest.MemoryMB = 3000 }))
		if err != nil || q.Refusal != nil {
			t.Fatalf("quote: %+v, %v", q.Refusal, err)
		}
		h.place(func(o *bourse.Order) { o.Config.Guest.MemoryMB = 3500 })
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, func(o *bourse.Order) { o.Config.Guest.MemoryMB = 3000 })})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedResource {
			t.Errorf("claim based on an old quote: %+v, %v; want a refusal based on the current ledger", refusal, err)
		}
		before := h.get(m.ID)
		h.crash()
		h.start(nil)
		after := h.get(m.ID)
		after.UpdatedAt = before.UpdatedAt
		if diff := cmp.Diff(before, after, byAddress); diff != "" {
			t.Errorf("after the restart (-before +after):\n%s", diff)
		}
		h.crash()
	})
}

func TestIdentityIsFixedAtTheFirstStart(t *testing.T) {
	h := newHost(t, nil)
	h.crash()
	for name, change := range map[string]func(*Config){
		"another id":     func(c *Config) { c.ID = "w2" },
		"another region": func(c *Config) { c.Region = "mad" },
	} {
		h.setup = change
		if err := h.tryStart(nil); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("%s: %v, want failed_precondition", name, err)
		}
	}
	h.setup = func(c *Config) { c.ID, c.Region = "", "" }
	h.start(nil)
	if got := h.Identity(); got.Worker != "w1" || got.Region != "gru" || got.Tag == 0 {
		t.Errorf("identity %+v, want w1 in gru with a tag", got)
	}
}

func TestTwoDaemonsOnOneDirectory(t *testing.T) {
	h := newHost(t, nil)
	_, err := Open(Config{Dir: h.dir, ID: "w1", Region: "gru", Driver: h.mem.Driver(), Log: testLog(t)})
	if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("second daemon: %v, want already_exists", err)
	}
}

// If the operator allows it, recovery removes a task that the driver runs without a
// record.
func TestRecoveryRemovesStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := h.place(run("run"))
		h.crash()
		stray := driver.TaskID{Machine: "abcdef01234567", Boot: 1}
		if _, err := h.mem.Driver().Start(t.Context(), driver.Task{ID: stray, Command: []string{"run"}}); err != nil {
			t.Fatal(err)
		}
		h.setup = func(c *Config) { c.Forget = true }
		h.start(nil)
		if got := h.mem.Running(); len(got) != 1 || got[0].Machine != m.ID {
			t.Errorf("runs %v, want only machine %s", got, m.ID)
		}
		h.crash()
	})
}
