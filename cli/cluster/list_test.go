package cluster

import (
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestWorkerList(t *testing.T) {
	list := machinesapi.WorkerList{Workers: []machinesapi.Worker{
		{ID: "gru-1", Region: "gru", Address: "127.0.0.1:40001", Tag: "148e21", Status: machinesapi.WorkerOK, Facts: &bourse.Facts{
			Machines: map[bourse.State]int{bourse.StateStarted: 2, bourse.StateDestroyed: 5},
			Accounts: []bourse.Account{{Resource: "cpu", Total: 4000, Used: 500}, {Resource: "memory", Total: 4096, Used: 2560}, {Resource: "slots", Total: 10, Used: 4}},
		}},
		{ID: "mad-1", Region: "mad", Address: "127.0.0.1:40002", Tag: "2200ff", Status: machinesapi.WorkerUnreachable, Error: "connection refused"},
	}}
	clitest.Golden(t, "worker_list", line.Against(t, clitest.Replies(http.StatusOK, list), "worker", "list").Out)
	clitest.Golden(t, "worker_show", line.Against(t, clitest.Replies(http.StatusOK, list.Workers[0]), "worker", "show", "gru-1").Out)
	list.Workers = append(list.Workers,
		machinesapi.Worker{ID: "gru-2", Region: "gru", Address: "127.0.0.1:40003", Tag: "148e22", Status: machinesapi.WorkerDown, Since: clitest.Now.Add(-time.Hour), Machines: 3, Volumes: 1},
		machinesapi.Worker{ID: "gru-3", Region: "gru", Tag: "148e23", Status: machinesapi.WorkerDown, Since: clitest.Now.Add(-49 * time.Hour), Earlier: true, Machines: 12},
		machinesapi.Worker{ID: "gru-4", Region: "gru", Tag: "148e24", Status: machinesapi.WorkerStopped, Since: clitest.Now.Add(-time.Minute)},
	)
	clitest.Golden(t, "worker_list_away_wide", line.Against(t, clitest.Replies(http.StatusOK, list), "worker", "list").Out)
	clitest.Golden(t, "worker_show_down", line.Against(t, clitest.Replies(http.StatusOK, list.Workers[2]), "worker", "show", "gru-2").Out)
}
