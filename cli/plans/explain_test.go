package plans

import (
	"errors"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestExplainAnother checks the error if another client is deploying or has deployed the app. Its hints must suggest
// commands that show the other deploy, and must not suggest a rollback.
func TestExplainAnother(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cause  error
		status release.Status
		hint   string
	}{
		{run.ErrLeased, release.Failed, "bourse releases -a shop, to see"},
		{run.ErrOvertaken, release.Interrupted, "bourse status -a shop, to see"},
	} {
		c := Executor{Title: "release v4 of shop", Resume: []string{"bourse rollback"}}
		err := c.explain(t.Context(), cordons(), &run.Result{Status: tt.status}, &bourse.Error{Code: bourse.CodeConflict, Message: "another: " + tt.cause.Error(), Err: tt.cause})
		hints := strings.Join(cli.Hints(err), "\n")
		if bourse.CodeOf(err) != bourse.CodeConflict || !strings.Contains(hints, tt.hint) || strings.Contains(hints, "rollback") {
			t.Errorf("%v: %v, hints %q", tt.cause, err, hints)
		}
		if !errors.Is(err, tt.cause) { // callers that continue with the release depend on this error
			t.Errorf("%v is not in the chain of %v", tt.cause, err)
		}
	}
}
