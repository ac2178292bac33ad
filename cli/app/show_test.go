package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

var line = clitest.Of(New)

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
		t.Errorf("no such app: %+v", got)
	}
}

func TestAppReleases(t *testing.T) {
	list := machinesapi.ReleaseList{Releases: []release.Release{
		{ID: "b", Version: 2, Status: release.Running, Strategy: "rolling", Image: "registry.example.com/shop:2", User: "ann", Description: "a faster basket", CreatedAt: clitest.Now.Add(-time.Minute)},
		{ID: "a", Version: 1, Status: release.Complete, CreatedAt: clitest.Now.Add(-50 * time.Hour)},
	}}
	h := clitest.Paths(map[string]any{"/v1/apps/shop/releases": list, "/v1/apps/new/releases": machinesapi.ReleaseList{}})
	line.Screens(t, "app_releases", h, "app", "releases", "shop")
	if got := line.Against(t, h, "app", "releases", "shop", "--json"); !strings.Contains(got.Out, `"version": 2`) {
		t.Errorf("--json: %+v", got)
	}
	if got := line.Against(t, h, "app", "releases", "new"); got.Code != 0 || !strings.Contains(got.Err, "no releases") {
		t.Errorf("none: %+v", got)
	}
	if got := line.Against(t, h, "app", "releases", "zoo"); got.Code != 3 || !strings.Contains(got.Err, "bourse app list") {
		t.Errorf("no such app: %+v", got)
	}
	if got := line.Against(t, h, "app", "releases", "shop", "--limit=-1"); got.Code != 2 {
		t.Errorf("a negative limit: %+v", got)
	}
}

func TestAppList(t *testing.T) {
	none := shop()
	none.Name, none.Status, none.MachineCount = "an-app-with-a-name-of-forty-characters-1", machinesapi.AppPending, 0
	line.Screens(t, "app_list", clitest.Replies(http.StatusOK, machinesapi.AppList{Apps: []machinesapi.App{shop(), none}}), "app", "list")
}
