package machine

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestTaskList(t *testing.T) {
	machine := func(id bourse.MachineID, name string, state bourse.State, task *bourse.TaskConfig) machinesapi.Machine {
		return machinesapi.FromMachine(&bourse.Machine{
			ID: id, Name: name, App: "shop", Worker: "gru-1", Region: "gru", State: state, Boot: bourse.Boot{Number: 2},
			Config: bourse.Config{Image: "host", Task: task},
		})
	}
	list := clitest.Replies(http.StatusOK, []machinesapi.Machine{
		machine("148e21ea1d5301", "resizes", bourse.StateStarted, &bourse.TaskConfig{Name: "resize", Concurrency: 4}),
		machine("148e21ea1d5302", "web", bourse.StateStarted, nil),
		machine("148e21ea1d5303", "counts-a-name-of-thirty-letters", bourse.StateRestarting, &bourse.TaskConfig{Name: "increment"}),
	})
	line.Screens(t, "task_list", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/usage") {
			list.ServeHTTP(w, r)
			return
		}
		if !strings.Contains(r.URL.Path, "148e21ea1d5301") {
			t.Errorf("unexpected request for %s, whose machine is not started or not warm", r.URL)
		}
		clitest.Replies(http.StatusOK, machinesapi.Usage{Tasks: &bourse.TaskCounts{
			Total: 1204, Failed: 3, FailedAt: clitest.Now.Add(-5 * time.Minute), Error: "the picture has no pixels\x1b[2J",
		}}).ServeHTTP(w, r)
	}), "task", "list", "-a", "shop")
}
