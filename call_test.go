package bourse_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

// Every pair of a call and a state has an answer, and each refusal a text.
func TestEveryCallHasAnAnswerInEveryState(t *testing.T) {
	for _, call := range bourse.Calls() {
		goes := false
		for _, state := range bourse.States() {
			answer, text := call.On(state)
			goes = goes || answer == bourse.Goes
			if (answer == bourse.Unable) != (text != "") || (answer == bourse.Gone) != (state == bourse.StateDestroyed) {
				t.Errorf("%s on a machine that is %s: %s %q", call, state, answer, text)
			}
			if settled := state.Settled(); call == bourse.CallStart && settled && answer == bourse.Unable {
				t.Errorf("a machine that is %s, which lasts, can never be started", state)
			}
		}
		if !goes {
			t.Errorf("%s never goes", call)
		}
	}
	for _, c := range []struct {
		call  bourse.Call
		state bourse.State
		want  string // the texts that clients look for
	}{
		{bourse.CallStart, bourse.StateCreated, "unable to start machine from current state: 'created'"},
		{bourse.CallStart, bourse.StateStopping, "machine still active, refusing to start"},
		{bourse.CallDestroy, bourse.StateStarted, "unable to destroy machine, not currently stopped"},
		{bourse.CallExec, bourse.StateStopped, "machine is stopped, not started"},
	} {
		if _, got := c.call.On(c.state); got != c.want {
			t.Errorf("%s on %s: %q, want %q", c.call, c.state, got, c.want)
		}
	}
}
