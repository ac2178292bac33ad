package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// line has one command, which prints the apps that the API returns.
var line = clitest.Of(func(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:  "apps",
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.Client().Apps(c.Context(), "")
			if err != nil {
				return err
			}
			return s.PrintJSON(list)
		},
	}
})

// TestExitCodes checks the exit status for every error code that a broker returns.
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
		got := line.Against(t, clitest.Failure(code, "the server's words"), "apps")
		if got.Code != status {
			t.Errorf("code %s: exit status %d, want %d", code, got.Code, status)
		}
		words := "the server's words"
		if code == bourse.CodeUnauthorized { // the API's message is replaced by one for users
			words = "the API requires a token"
		}
		if !strings.HasPrefix(got.Err, "error: ") || !strings.Contains(got.Err, words) || got.Out != "" {
			t.Errorf("code %s: out %q, err %q; want the server's message on stderr and no output", code, got.Out, got.Err)
		}
	}
	if got := cli.ExitCode(errors.New("without a code")); got != 1 {
		t.Errorf("an error without a code: exit status %d, want 1", got)
	}
	if got := cli.ExitCode(fmt.Errorf("more: %w", cli.ExitStatus(42))); got != 42 {
		t.Errorf("a remote exit: %d, want 42", got)
	}
}

// TestErrorsAreEscaped checks that control characters in a server's message
// are escaped.
func TestErrorsAreEscaped(t *testing.T) {
	got := line.Against(t, clitest.Failure(bourse.CodeInvalid, "evil \x1b[2J\u202e\r text"), "apps")
	if strings.ContainsAny(got.Err, "\x1b\r\u202e") || !strings.Contains(got.Err, `\x1b[2J`) {
		t.Errorf("stderr %q, want escaped control characters", got.Err)
	}
}

// TestErrorsInJSON checks that with --json, only the API's error object is printed, to
// standard output, with its code and refusals.
func TestErrorsInJSON(t *testing.T) {
	want := machinesapi.ErrorBody{
		Error: "no worker could", Status: machinesapi.StatusVolumePlacement, Code: bourse.CodeInsufficient, OrderID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5",
		Refusals: []bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: "disk", Wanted: 2, Free: 1, Detail: "insufficient disk"}},
	}
	got := line.Against(t, clitest.Replies(412, want), "apps", "--json")
	var body machinesapi.ErrorBody
	if err := json.Unmarshal([]byte(got.Out), &body); err != nil || got.Err != "" || got.Code != 6 || strings.Count(got.Out, "\n") != 1 {
		t.Errorf("exit status %d, out %q, err %q (%v); want 6 and one line of JSON", got.Code, got.Out, got.Err, err)
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, args := range [][]string{{"apps", "--json", "--nope"}, {"apps", "--nope", "--json"}, {"apps", "-j", "extra"}, {"nope", "--json"}} {
		got := line.Run(t, args...)
		if got.Code != 2 || got.Err != "" || !strings.Contains(got.Out, `"code":"invalid"`) {
			t.Errorf("%q: exit status %d, out %q, err %q; want 2 and only JSON", args, got.Code, got.Out, got.Err)
		}
	}
}
