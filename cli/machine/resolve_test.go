package machine

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestAmbiguousNameIsRejected checks that a name that two machines have is rejected with an
// error that lists their ids.
func TestAmbiguousNameIsRejected(t *testing.T) {
	list := []machinesapi.Machine{
		{Summary: machinesapi.Summary{ID: "148e21ea1d5389", Name: "web", State: bourse.StateStarted}},
		{Summary: machinesapi.Summary{ID: "2200ffea1d5389", Name: "web", State: bourse.StateStarted}},
		{Summary: machinesapi.Summary{ID: "2200ffea1d5390", Name: "web", State: bourse.StateDestroying}},
	}
	for _, args := range [][]string{{"status", "web"}, {"destroy", "--yes", "--force", "web"}, {"exec", "web", "--", "true"}, {"stop", "web"}, {"logs", "web"}} {
		got := line.Against(t, clitest.Replies(http.StatusOK, list), append([]string{"machine"}, args...)...)
		if got.Code != 2 || !strings.Contains(got.Err, "148e21ea1d5389, 2200ffea1d5389") {
			t.Errorf("%v: exit status %d, %q", args, got.Code, got.Err)
		}
	}
}
