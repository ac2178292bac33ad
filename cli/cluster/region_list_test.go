package cluster

import (
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// worker returns a worker that answers and has 4 cores and 4 GiB of memory, of which the
// given amounts are free.
func worker(id bourse.WorkerID, region bourse.Region, cores, gib int64, machines int) machinesapi.Worker {
	return machinesapi.Worker{ID: id, Region: region, Status: machinesapi.WorkerOK, Facts: &bourse.Facts{
		Machines: map[bourse.State]int{bourse.StateStarted: machines, bourse.StateDestroyed: 9},
		Accounts: []bourse.Account{
			{Resource: bourse.ResourceMemory, Total: 4096, Used: 4096 - gib<<10}, {Resource: bourse.ResourceCPU, Total: 4000, Used: 4000 - cores*1000},
		},
	}}
}

func TestRegionList(t *testing.T) {
	down, leaving := worker("mad-2", "mad", 4, 4, 0), worker("ord-2", "ord", 4, 4, 3)
	down.Status, down.Facts, leaving.Leaving = machinesapi.WorkerUnreachable, nil, true
	known := machinesapi.RegionList{Regions: []machinesapi.Region{{Code: "gru", Workers: 2}, {Code: "mad", Workers: 2}, {Code: "ord", Workers: 2}}}
	h := clitest.Paths(map[string]any{
		"/v1/platform/regions": known,
		"/v1/workers": machinesapi.WorkerList{Workers: []machinesapi.Worker{
			worker("gru-1", "gru", 4, 4, 0), worker("gru-2", "gru", 3, 2, 7), worker("mad-1", "mad", 1, 1, 12), down, worker("ord-1", "ord", 4, 4, 0), leaving,
		}},
	})
	line.Screens(t, "region_list", h, "region", "list")
	clitest.Golden(t, "region_list_json_wide", line.Against(t, h, "region", "list", "--json").Out)
}

// TestRegionListOfATenant checks that regions are listed even if the token may not list
// workers.
func TestRegionListOfATenant(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/v1/platform/regions", clitest.Replies(http.StatusOK, machinesapi.RegionList{Regions: []machinesapi.Region{{Code: "gru", Workers: 2}}}))
	mux.Handle("/v1/workers", clitest.Failure(bourse.CodeForbidden, "unauthorized"))
	got := line.Against(t, mux, "region", "list")
	if want := "REGION  WORKERS  MACHINES  CPU FREE  MEMORY FREE\ngru     2               -         -            -\n"; got.Code != 0 || got.Out != want || got.Err != "" {
		t.Errorf("got %+v, want\n%s", got, want)
	}
}
