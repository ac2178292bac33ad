package machine

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestCloneOfAReplacement checks that the clone of a machine that an unfinished plan
// created as a replacement is not marked as a replacement itself. Otherwise a plan would
// destroy the clone, or the original's volume.
func TestCloneOfAReplacement(t *testing.T) {
	t.Parallel()
	from := machinesapi.Machine{Summary: machinesapi.Summary{ID: "148e21ea1d5389", Name: "web-1", Region: "gru", State: bourse.StateStarted}}
	from.Config = &bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"true"}}, Metadata: map[string]string{
		deploy.KeyReplaces: "148e21ea1d5390", deploy.KeyCopies: "i1/2", deploy.KeyPaused: "true", deploy.KeyCanary: "true", deploy.KeyGroup: "web", "tier": "a",
	}}
	var made machinesapi.CreateMachine
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&made); err != nil {
				t.Error(err)
			}
		}
		clitest.Replies(http.StatusOK, from).ServeHTTP(w, r)
	})
	if got := line.Against(t, h, "machine", "clone", "148e21ea1d5389"); got.Code != 0 {
		t.Fatalf("exit status %d: %s", got.Code, got.Err)
	}
	if diff := cmp.Diff(map[string]string{deploy.KeyGroup: "web", "tier": "a"}, made.Config.Metadata); diff != "" {
		t.Errorf("the clone's metadata (-want +got):\n%s", diff)
	}
}
