package bourse_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// TestStateTableIsClosed checks that every state can be reached, that the last state can be reached
// from every other state, and that the last state has no successor.
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
			t.Errorf("state %s cannot be reached", s)
		}
		if s != bourse.StateDestroyed && !slices.Contains(reach(s), bourse.StateDestroyed) {
			t.Errorf("a machine in state %s can never be destroyed", s)
		}
		if bourse.StateDestroyed.CanBecome(s) {
			t.Errorf("a destroyed machine may become %s", s)
		}
		if s.CanBecome("") || s.CanBecome(s) {
			t.Errorf("%s may become itself or the empty state, want neither", s)
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

// TestEveryCallHasAnAnswerInEveryState checks that every call has an answer in every state, and
// that each refusal has a text.
func TestEveryCallHasAnAnswerInEveryState(t *testing.T) {
	for _, call := range bourse.Calls() {
		allowed := false
		for _, state := range bourse.States() {
			answer, text := call.On(state)
			allowed = allowed || answer == bourse.CallAllowed
			if (answer == bourse.CallRefused) != (text != "") || (answer == bourse.CallNotFound) != (state == bourse.StateDestroyed) {
				t.Errorf("%s in state %s: got %s with text %q, want a text only for refusals, and not found only if destroyed", call, state, answer, text)
			}
			if settled := state.Settled(); call == bourse.CallStart && settled && answer == bourse.CallRefused {
				t.Errorf("a machine in the settled state %s cannot be started", state)
			}
		}
		if !allowed {
			t.Errorf("%s is not allowed in any state", call)
		}
	}
	for _, c := range []struct {
		call  bourse.Call
		state bourse.State
		want  string // the text that clients search for
	}{
		{bourse.CallStart, bourse.StateCreated, "unable to start machine from current state: 'created'"},
		{bourse.CallStart, bourse.StateStopping, "machine still active, refusing to start"},
		{bourse.CallDestroy, bourse.StateStarted, "unable to destroy machine, not currently stopped"},
		{bourse.CallExec, bourse.StateStopped, "machine is stopped, not started"},
	} {
		if _, got := c.call.On(c.state); got != c.want {
			t.Errorf("%s in state %s: got %q, want %q", c.call, c.state, got, c.want)
		}
	}
}

// TestScheduleNext checks that successive starts of a schedule are one period apart. The first
// start must be one period after the machine's creation, regardless of the time that is passed to
// Next.
func TestScheduleNext(t *testing.T) {
	periods := map[bourse.Schedule][2]time.Duration{
		bourse.Hourly: {time.Hour, time.Hour}, bourse.Daily: {24 * time.Hour, 24 * time.Hour},
		bourse.Weekly: {168 * time.Hour, 168 * time.Hour}, bourse.Monthly: {28 * 24 * time.Hour, 31 * 24 * time.Hour},
	}
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.SampledFrom([]bourse.Schedule{bourse.Hourly, bourse.Daily, bourse.Weekly, bourse.Monthly}).Draw(t, "every")
		created := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "created"), 5)
		after := created.Add(time.Duration(rapid.Int64Range(-1e15, 1e18).Draw(t, "after")))
		id := bourse.MachineID(rapid.StringMatching("[0-9a-f]{14}").Draw(t, "id"))
		at := every.Next(created, id, after)
		first := every.Next(created, id, created)
		if !at.After(after) || at.Before(first) || first.Sub(created) < periods[every][0] || first.Sub(created) > periods[every][1]+5*time.Minute {
			t.Errorf("schedule %s, machine created at %s: got start %s after %s, and first start %s; want a later start, and one period until the first", every, created, at, after, first)
		}
		if again := every.Next(created, id, at.Add(-1)); !again.Equal(at) {
			t.Errorf("next start just before %s: got %s, want that time", at, again)
		}
		gap := every.Next(created, id, at).Sub(at)
		if gap < periods[every][0]-3*24*time.Hour*time.Duration(len(every)/7) || gap > periods[every][1] {
			t.Errorf("%s: got an interval of %s between two starts, want one period", every, gap)
		}
	})
}

func TestMonthlyOnTheLastDay(t *testing.T) {
	created := time.Date(2027, time.January, 31, 12, 0, 0, 0, time.UTC)
	at := created
	for _, want := range []string{"02-28", "03-31", "04-30", "05-31"} {
		if at = bourse.Monthly.Next(created, "148e21ea1d5389", at); at.Format("01-02") != want {
			t.Errorf("got %s, want %s", at, want)
		}
	}
}

func TestScheduleOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`""`: true, `null`: true, `"hourly"`: true, `"monthly"`: true, `"yearly"`: false, `"Hourly"`: false, `7`: false, `["daily"]`: false,
	} {
		if err := normalized(`"schedule":` + text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStandbysOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`[]`: true, `null`: true, `["148e21ea1d5301"]`: true, `"148e21ea1d5301"`: false, `[1]`: false, `["../x"]`: false,
		`["148e21ea1d5301"` + strings.Repeat(`,"148e21ea1d5301"`, bourse.MaxStandbys) + `]`: false,
	} {
		if err := normalized(`"standbys":` + text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// normalized decodes and normalizes a config that contains the given member.
func normalized(member string) error {
	var c bourse.Config
	if err := json.Unmarshal([]byte(`{"image":"nginx",`+member+`}`), &c); err != nil {
		return err
	}
	return c.Normalize()
}
