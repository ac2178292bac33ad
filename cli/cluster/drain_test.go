package cluster

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// drainable returns the API's replies for a cluster whose worker gru-1 has machines of two
// apps. Some can be moved, one of them with its volume, and two must stay.
func drainable() map[string]any {
	machine := func(id bourse.MachineID, app bourse.AppName, name string) machinesapi.Machine {
		m := machinesapi.FromMachine(&bourse.Machine{ID: id, App: app, Name: name, Region: "gru", State: bourse.StateStarted, Worker: "gru-1", Instance: "01"})
		m.HostStatus = machinesapi.HostOK
		m.Config = &bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"serve"}}, Metadata: map[string]string{deploy.KeyGroup: "web"}}
		m.Config.Services = json.RawMessage(`[{"protocol":"tcp","internal_port":8080,"ports":[{"port":80}]}]`)
		return m
	}
	volume := func(m machinesapi.Machine, group string, serves bool) machinesapi.Machine {
		m.Config.Mounts = []bourse.Mount{{Volume: "vol_0000000000000001", Name: "data", SizeGB: 1, Path: "/data"}}
		m.Config.Metadata[deploy.KeyGroup] = group
		if !serves {
			m.Config.Services = nil
		}
		return m
	}
	job := machine("148e21ea1d5303", "blog", "job")
	job.Config.Services, job.Config.Restart = nil, &bourse.Restart{Policy: bourse.RestartNo}
	blog := []machinesapi.Machine{machine("148e21ea1d5301", "blog", "wild-wood-9"), job}
	shop := []machinesapi.Machine{
		machine("148e21ea1d5304", "shop", "quiet-river-1234"), volume(machine("148e21ea1d5305", "shop", "queue"), "worker", false),
		volume(machine("148e21ea1d5306", "shop", "database-of-orders"), "db", true),
	}
	return map[string]any{
		"/v1/workers/gru-1":      machinesapi.Worker{ID: "gru-1", Region: "gru", Status: machinesapi.WorkerOK, Facts: &bourse.Facts{}},
		"/v1/machines":           append(append([]machinesapi.Machine{}, blog...), shop...),
		"/v1/apps/blog/machines": blog, "/v1/apps/shop/machines": shop,
		"/v1/apps/blog/volumes": []machinesapi.Volume{}, "/v1/apps/shop/volumes": []machinesapi.Volume{},
	}
}

// TestDrainPlanScreens checks the list of machines that would be moved, and that the
// reasons why others stay are printed in full.
func TestDrainPlanScreens(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/", clitest.Paths(drainable()))
	mux.HandleFunc("POST /v1/view/queries", func(w http.ResponseWriter, _ *http.Request) {
		e := json.NewEncoder(w)
		_ = e.Encode(map[string]any{"columns": []string{"id", "app", "name", "machine"}})
		_ = e.Encode(map[string]any{"row": []any{"vol_0000000000000009", "shop", "data", ""}})
		_ = e.Encode(map[string]any{"end": map[string]any{"rows": 1}})
	})
	line.Screens(t, "drain_plan", mux, "worker", "drain", "gru-1", "--plan")
}

// TestDrainSummaryScreens checks the summary at the end of a drain.
func TestDrainSummaryScreens(t *testing.T) {
	for _, width := range clitest.Widths {
		clitest.Screen(t, "drain_summary", width, clitest.On(t, width, func(s *cli.Shell) error {
			d := drain{shell: s, worker: "gru-1", moved: map[bourse.MachineID]bool{"a": true, "b": true}}
			d.addRemaining(remaining{App: "blog", Machine: "148e21ea1d5303", Name: "job", Why: "it runs to its end, and would run again from the beginning: wait for it, or destroy it"},
				remaining{App: "shop", Machine: "148e21ea1d5306", Name: "database-of-orders", Why: "0 of its group would serve while its volume is copied, and 1 have to: add one, or allow downtime"})
			if err := d.conclude(nil); err == nil || len(cli.Hints(err)) == 0 {
				t.Errorf("got error %v, want an error with hints", err)
			}
			return nil
		}))
	}
}
