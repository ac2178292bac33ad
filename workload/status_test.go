package workload_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

func TestReady(t *testing.T) {
	t.Parallel()
	const asked = `{"up": {"type": "tcp", "port": 80, "kind": "readiness"}, "note": {"type": "tcp", "port": 81}}`
	results := func(boot int, up, note bourse.CheckState) *bourse.CheckResults {
		return &bourse.CheckResults{Boot: boot, Results: []bourse.CheckStatus{{Name: "up", Status: up}, {Name: "note", Status: note}}}
	}
	const passing, critical = bourse.CheckPassing, bourse.CheckCritical
	for name, c := range map[string]struct {
		checks, services string
		found            *bourse.CheckResults
		want             bool
	}{
		"no checks":                         {"", "", nil, true},
		"none that decides":                 {`{"note": {"type": "tcp", "port": 81}}`, "", results(2, passing, critical), true},
		"a service's":                       {"", `[{"internal_port": 80, "checks": [{"type": "tcp"}]}]`, nil, true},
		"passing":                           {asked, "", results(2, passing, critical), true},
		"critical":                          {asked, "", results(2, critical, passing), false},
		"no result yet":                     {asked, "", nil, false},
		"results of an earlier start":       {asked, "", results(1, passing, passing), false},
		"checks that cannot be read":        {`{"up": {"type": "ping", "kind": "readiness"}}`, "", nil, true},
		"items that are not checks":         {`[7]`, "", nil, true},
		"a result of another's name":        {`{"up2": {"type": "tcp", "port": 80, "kind": "readiness"}}`, "", results(2, passing, passing), false},
		"one of two readiness checks fails": {`{"up": {"port": 1, "type": "tcp", "kind": "readiness"}, "note": {"port": 2, "type": "tcp", "kind": "readiness"}}`, "", results(2, passing, critical), false},
	} {
		m := bourse.Machine{State: bourse.StateStarted, Config: *config(c.checks, c.services), Checks: c.found}
		m.Config.Image, m.Boot.Number = "nginx", 2
		if got := workload.Ready(&m); got != c.want {
			t.Errorf("%s: ready %t, want %t", name, got, c.want)
		}
	}
}
