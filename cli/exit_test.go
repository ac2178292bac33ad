package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// TestExitCodes goes through every code: the broker's error body, the client,
// the exit status.
func TestExitCodes(t *testing.T) {
	want := map[bourse.Code]int{
		bourse.CodeInternal: 1, bourse.CodeInvalid: 2, bourse.CodeNotFound: 3, bourse.CodeUnauthorized: 4, bourse.CodeForbidden: 4,
		bourse.CodeAlreadyExists: 5, bourse.CodeConflict: 5, bourse.CodeFailedPrecondition: 5, bourse.CodeInsufficient: 6,
		bourse.CodeRateLimited: 7, bourse.CodeUnavailable: 7, bourse.CodeTimeout: 8, bourse.CodeCanceled: 130,
	}
	for _, code := range bourse.Codes() {
		status, ok := want[code]
		if !ok {
			t.Errorf("code %s has no exit status", code)
			continue
		}
		got := against(t, failure(code, "the server's words"), "machine", "status", "148e21ea1d5389")
		if got.code != status {
			t.Errorf("code %s: exit status %d, want %d", code, got.code, status)
		}
		if !strings.HasPrefix(got.err, "error: ") || !strings.Contains(got.err, "the server's words") || got.out != "" {
			t.Errorf("code %s: out %q, err %q; want the server's words on stderr alone", code, got.out, got.err)
		}
	}
	if got := ExitCode(errors.New("of no code")); got != 1 {
		t.Errorf("an error without a code: exit status %d, want 1", got)
	}
	if got := ExitCode(fmt.Errorf("more: %w", remoteExit(42))); got != 42 {
		t.Errorf("a remote exit: %d, want 42", got)
	}
}

func TestUsageErrorsAreInvalid(t *testing.T) {
	for _, args := range [][]string{
		{"foo"},
		{"machine", "foo"},
		{"machine", "run"},
		{"machine", "run", "host", "--nope"},
		{"machine", "list", "extra"},
		{"machine", "logs", "x", "--tail", "many"},
		{"order", "show"},
		{"order", "show", "../etc"},
		{"dev", "--workers", "0"},
		{"machine", "run", "host", "--vm-memory", "NaN", "--", "x"},
		{"machine", "run", "host"},
		{"machine", "run", "host", "-n", "a/b", "--", "x"},
		{"machine", "run", "host", "--vm-cpus", "-1", "--", "x"},
		{"machine", "run", "host", "--deadline", "-1s", "--", "x"},
		{"machine", "run", "host", "--restart", "maybe", "--", "x"},
		{"machine", "run", "host", "--order-id", "x", "--", "x"},
		{"machine", "signal", "-s", "SIGNOPE", "148e21ea1d5389"},
		{"machine", "signal", "148e21ea1d5389", "SIGHUP"},
		{"machine", "wait", "--state", "asleep", "148e21ea1d5389"},
		{"app", "create", "Bad Name"},
		{"serve", "worker"},
		{"machine", "destroy", "148e21ea1d5389"},
		{"app", "destroy", "shop"},
	} {
		got := runMain(t, append([]string{"--api", "http://127.0.0.1:1"}, args...)...)
		if got.code != 2 || !strings.HasPrefix(got.err, "error: ") || got.out != "" {
			t.Errorf("%q: exit status %d, out %q, err %q; want 2 and an error", args, got.code, got.out, got.err)
		}
	}
}

// A placeholder that is too long would put every flag's words on a line below
// it.
func TestFlagsHaveTheirWordsBeside(t *testing.T) {
	env := Env{Getenv: func(string) string { return "" }}
	env.Out, _ = buffer("")
	looked := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		looked++
		for line := range strings.Lines(c.LocalFlags().FlagUsagesWrapped(80)) {
			if strings.HasSuffix(line, " \n") {
				t.Errorf("%s --help: line %q", c.CommandPath(), line)
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look((&shell{Env: env}).root())
	if looked < 50 {
		t.Errorf("only %d commands have been looked at", looked)
	}
}

func TestHints(t *testing.T) {
	for name, tt := range map[string]struct {
		got  result
		want []string
	}{
		"nobody listens": {
			runMain(t, "--api", "http://127.0.0.1:1", "machine", "list"),
			[]string{"bourse dev", "--api", "127.0.0.1:1"},
		},
		"no such machine": {
			against(t, failure(bourse.CodeNotFound, "machine not found"), "machine", "status", "148e21ea1d5389", "-a", "shop"),
			[]string{"148e21ea1d5389", "bourse machine list -a shop"},
		},
		"no such app": {
			against(t, failure(bourse.CodeNotFound, "app not found"), "machine", "run", "host", "-a", "shop", "--", "true"),
			[]string{"bourse app create shop"},
		},
		"outcome unknown": {
			against(t, failure(bourse.CodeTimeout, "no answer"), "machine", "run", "host", "--order-id", "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", "--", "true"),
			[]string{"bourse order show 01JD3V7K7Y5C5ZQ7W1R2M3N4P5", "--order-id 01JD3V7K7Y5C5ZQ7W1R2M3N4P5"},
		},
		"nobody to confirm": {
			runMain(t, "machine", "destroy", "148e21ea1d5389"),
			[]string{"--yes"},
		},
		"token": {
			against(t, failure(bourse.CodeUnauthorized, "who are you"), "app", "list"),
			[]string{"--token", "BOURSE_API_TOKEN"},
		},
	} {
		for _, want := range tt.want {
			if !strings.Contains(tt.got.err, want) {
				t.Errorf("%s: %q does not mention %q", name, tt.got.err, want)
			}
		}
	}
}

// TestErrorsCannotDriveTheTerminal: what a server says is shown, not obeyed.
func TestErrorsCannotDriveTheTerminal(t *testing.T) {
	got := against(t, failure(bourse.CodeInvalid, "evil \x1b[2J\u202e\r text"), "machine", "list")
	if strings.ContainsAny(got.err, "\x1b\r\u202e") || !strings.Contains(got.err, `\x1b[2J`) {
		t.Errorf("stderr %q, want the control characters as escapes", got.err)
	}
}
