package app

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestStatusReportsCrashes checks that status reports a machine that crashed after its
// deploy, with a command that shows why, and that it does not report machines that were
// stopped or that exited with status 0.
func TestStatusReportsCrashes(t *testing.T) {
	machine := func(name string, exit *bourse.Exit, requested bool) machinesapi.Machine {
		m := bourse.Machine{ID: bourse.MachineID("148e21ea1d530" + name[1:]), Name: name, App: "shop", Region: "gru", State: bourse.StateStopped}
		m.Boot.Number, m.Boot.Exit, m.Boot.Requested = 1, exit, requested
		return machinesapi.FromMachine(&m)
	}
	h := clitest.Paths(map[string]any{
		"/v1/apps/shop/machines": []machinesapi.Machine{
			machine("m1", &bourse.Exit{Code: 3}, false), machine("m2", &bourse.Exit{Code: 143}, true), machine("m3", &bourse.Exit{}, false),
		},
		"/v1/apps/shop/releases": machinesapi.ReleaseList{},
	})
	got := statusLine.Against(t, h, "status", "-a", "shop")
	const want = "! m1: crashed with exit code 3: bourse machine logs -a shop 148e21ea1d5301\n"
	if got.Code != 0 || !strings.Contains(got.Out, want) || strings.Count(got.Out, "! ") != 1 {
		t.Errorf("want %q in\n%s%s", want, got.Out, got.Err)
	}
}
