package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

var line = clitest.Of(func(s *cli.Shell) *cobra.Command { return New(s) }, NewSecrets, NewTokens, NewCredentials)

func TestMain(m *testing.M) { clitest.InUTC(m) }

func shop() machinesapi.App {
	return machinesapi.FromApp(bourse.App{Name: "shop", ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", Org: "acme", Network: "acme-net", CreatedAt: clitest.Now.Add(-50 * time.Hour)}, 3, 0)
}

func TestAppShow(t *testing.T) {
	machine := func(region bourse.Region, state bourse.State) machinesapi.Machine {
		return machinesapi.FromMachine(&bourse.Machine{ID: "148e21ea1d5389", App: "shop", Region: region, State: state})
	}
	h := clitest.Paths(map[string]any{
		"/v1/apps/shop": shop(),
		"/v1/apps/shop/machines": []machinesapi.Machine{
			machine("gru", bourse.StateStarted), machine("gru", bourse.StateStarted), machine("mad", bourse.StateStopped),
		},
		"/v1/apps/shop/volumes": []machinesapi.Volume{{}},
	})
	line.Screens(t, "app_show", h, "app", "show", "shop")
	if got := line.Against(t, h, "app", "show", "shop", "--json"); !strings.Contains(got.Out, `"machine_count": 3`) {
		t.Errorf("--json: %+v", got)
	}
	if got := line.Against(t, h, "app", "show", "zoo"); got.Code != 3 || !strings.Contains(got.Err, "bourse app list") {
		t.Errorf("unknown app: %+v", got)
	}
}

func TestAppList(t *testing.T) {
	none := shop()
	none.Name, none.Status, none.MachineCount = "an-app-with-a-name-of-forty-characters-1", machinesapi.AppPending, 0
	line.Screens(t, "app_list", clitest.Replies(http.StatusOK, machinesapi.AppList{Apps: []machinesapi.App{shop(), none}}), "app", "list")
}
