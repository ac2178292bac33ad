package machine

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// TestInterrupted checks that after Ctrl-C the command prints only the order's outcome and
// exits with status 130.
func TestInterrupted(t *testing.T) {
	const order = "01JD3V7K7Y5C5ZQ7W1R2M3N4P5"
	decided := func(outcome bourse.Outcome, machine bourse.MachineID) http.Handler {
		return clitest.Replies(http.StatusOK, bourse.Decision{Order: order, App: "default", Outcome: outcome, Machine: machine})
	}
	for name, tt := range map[string]struct {
		h          http.Handler
		path, args string
		want       string
	}{
		"run": {
			decided(bourse.OutcomeCanceled, ""), "/v1/apps", "machine run host --order-id " + order + " -- true",
			"interrupted; order " + order + " was canceled\n",
		},
		"run, too late": {
			decided(bourse.OutcomeFilled, "148e21ea1d5389"), "/v1/apps", "machine run host --order-id " + order + " -- true",
			"interrupted; order " + order + " had been filled: bourse machine status -a default 148e21ea1d5389\n",
		},
		"run, refused in the meantime": {
			decided(bourse.OutcomeRefused, ""), "/v1/apps", "machine run host --order-id " + order + " -- true",
			"interrupted; order " + order + " was not filled\n",
		},
		"wait":      {nil, "/v1/apps", "machine wait 148e21ea1d5389", ""},
		"logs -f":   {nil, "/v1/apps", "machine logs -f 148e21ea1d5389", ""},
		"logs":      {nil, "/v1/apps", "machine logs 148e21ea1d5389", ""},
		"exec":      {nil, "/v1/apps", "machine exec 148e21ea1d5389 -- sleep 60", ""},
		"list":      {nil, "/v1/apps", "machine list", ""},
		"list JSON": {nil, "/v1/apps", "machine list --json", ""},
	} {
		got := line.Interrupted(t, tt.h, tt.path, strings.Fields(tt.args)...)
		if got.Code != 130 || got.Err != tt.want || got.Out != "" {
			t.Errorf("%s: exit status %d, out %q, err %q; want 130 and %q", name, got.Code, got.Out, got.Err, tt.want)
		}
	}
}
