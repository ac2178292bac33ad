package bourse_test

import (
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// The table of states is closed: every state can be reached from nothing,
// every one but the last can end in it, and nothing follows the last.
func TestStateTableIsClosed(t *testing.T) {
	states := bourse.States()
	reach := func(from bourse.State) []bourse.State {
		var seen []bourse.State
		next := []bourse.State{from}
		for len(next) > 0 {
			s := next[0]
			next = next[1:]
			for _, to := range states {
				if s.CanBecome(to) && !slices.Contains(seen, to) {
					seen, next = append(seen, to), append(next, to)
				}
			}
		}
		return seen
	}
	fromNothing := reach("")
	for _, s := range states {
		if !slices.Contains(fromNothing, s) {
			t.Errorf("no machine ever becomes %s", s)
		}
		if s != bourse.StateDestroyed && !slices.Contains(reach(s), bourse.StateDestroyed) {
			t.Errorf("a machine that is %s can never be destroyed", s)
		}
		if bourse.StateDestroyed.CanBecome(s) {
			t.Errorf("a destroyed machine becomes %s", s)
		}
		if s.CanBecome("") || s.CanBecome(s) {
			t.Errorf("%s becomes nothing, or itself", s)
		}
	}
	if bourse.State("migrated").CanBecome(bourse.StateStarted) || bourse.StateStarted.CanBecome("migrated") {
		t.Error("an unknown state has transitions")
	}
}

func TestLeaseExpired(t *testing.T) {
	now := time.Unix(100, 0)
	for name, c := range map[string]struct {
		lease *bourse.Lease
		want  bool
	}{
		"none":        {nil, true},
		"future":      {&bourse.Lease{ExpiresAt: now.Add(1)}, false},
		"this moment": {&bourse.Lease{ExpiresAt: now}, true},
		"past":        {&bourse.Lease{ExpiresAt: now.Add(-1)}, true},
	} {
		if got := c.lease.Expired(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestExitFailed(t *testing.T) {
	for name, c := range map[string]struct {
		exit bourse.Exit
		want bool
	}{
		"well":   {bourse.Exit{}, false},
		"code":   {bourse.Exit{Code: 1}, true},
		"signal": {bourse.Exit{Code: -1, Signal: 9}, true},
		"lost":   {bourse.Exit{Code: -1, Error: "lost"}, true},
	} {
		if got := c.exit.Failed(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
