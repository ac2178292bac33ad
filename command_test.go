package bourse_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestCommand(t *testing.T) {
	for text, want := range map[string][]string{
		`"a | b"`:     {"sh", "-c", "a | b"},
		`["a", "b "]`: {"a", "b "},
		`["a", ""]`:   {"a", ""},
		`""`:          nil, `" "`: nil, `[]`: nil, `[""]`: nil, `[1]`: nil, `7`: nil, `null`: nil, `{}`: nil, `"a\u0000"`: nil, `["a", "\u0000"]`: nil,
	} {
		var got bourse.Command
		err := json.Unmarshal([]byte(text), &got)
		if want == nil && bourse.CodeOf(err) != bourse.CodeInvalid || want != nil && (err != nil || !slices.Equal(got, want)) {
			t.Errorf("%s was read as %q, %v; want %q", text, got, err, want)
		}
	}
}

// FuzzCommand: what is read can be executed.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{`"a"`, `["a","b"]`, `null`, `[]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c bourse.Command
		if err := c.UnmarshalJSON(text); err == nil && (len(c) == 0 || c[0] == "") {
			t.Errorf("%q was read as %q", text, c)
		}
	})
}

func TestRestartAgain(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(times ...time.Duration) (out []time.Time) {
		for _, d := range times {
			out = append(out, now.Add(-d))
		}
		return out
	}
	for what, c := range map[string]struct {
		policy bourse.RestartPolicy
		exit   bourse.Exit
		before []time.Time
		again  bool
		recent int
	}{
		"no, failed":            {bourse.RestartNo, bourse.Exit{Code: 1}, nil, false, 0},
		"on-failure, good":      {bourse.RestartOnFailure, bourse.Exit{}, nil, false, 0},
		"on-failure, failed":    {bourse.RestartOnFailure, bourse.Exit{Signal: 9}, nil, true, 0},
		"always, good":          {bourse.RestartAlways, bourse.Exit{}, ago(time.Minute), true, 1},
		"too often":             {bourse.RestartAlways, bourse.Exit{}, ago(time.Second, time.Minute), false, 2},
		"often, but long ago":   {bourse.RestartAlways, bourse.Exit{}, ago(time.Hour, bourse.RestartWindow), true, 0},
		"a policy that is none": {"sometimes", bourse.Exit{Code: 1}, nil, false, 0},
	} {
		c.exit.At = now
		again, recent := bourse.Restart{Policy: c.policy, MaxRetries: 2}.Again(c.exit, c.before)
		if again != c.again || len(recent) != c.recent {
			t.Errorf("%s: %v with %d before, want %v with %d", what, again, len(recent), c.again, c.recent)
		}
	}
	for n, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 9: 25600 * time.Millisecond, 10: 30 * time.Second, 1 << 30: 30 * time.Second} {
		if got := bourse.RestartBackoff(n); got != want {
			t.Errorf("the %d-th restart waits %s, want %s", n, got, want)
		}
	}
}
