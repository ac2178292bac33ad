package machine

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestMoveToWorkerWithAppToken checks that a token for a single app permits moving the
// app's machines to a named worker in their region, although it does not permit listing
// workers.
func TestMoveToWorkerWithAppToken(t *testing.T) {
	const id = "148e21ea1d5389"
	m := machinesapi.FromMachine(&bourse.Machine{ID: id, App: "shop", Region: "gru", Worker: "gru-1", State: bourse.StateStarted, Config: bourse.Config{Image: "host"}})
	m.Config = &bourse.Config{Image: "host"}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/workers/", clitest.Failure(bourse.CodeForbidden, machinesapi.ClusterOnlyText))
	mux.Handle("GET /v1/apps/shop/machines", clitest.Replies(http.StatusOK, []machinesapi.Machine{m}))
	mux.Handle("GET /v1/apps/shop/volumes", clitest.Replies(http.StatusOK, []machinesapi.Volume{}))
	got := line.Against(t, mux, "machine", "move", id, "-a", "shop", "--to", "gru-2", "--plan", "--json")
	var p struct {
		Steps []struct{ Do, Worker, Region string }
	}
	if err := json.Unmarshal([]byte(got.Out), &p); err != nil || got.Code != 0 {
		t.Fatalf("%v %+v", err, got)
	}
	if s := p.Steps[0]; s.Do != "create machine" || s.Worker != "gru-2" || s.Region != "gru" {
		t.Errorf("%+v", s)
	}
}
