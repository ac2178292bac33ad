package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// apps implements Apps for tests.
type apps map[bourse.AppName][]*route.Target

func (a apps) App(name bourse.AppName) []*route.Target { return a[name] }

// target returns a target of an app at the given port. It has the given machines, each in its
// region.
func target(a *route.App, port int, machines map[bourse.MachineID]bourse.Region) *route.Target {
	t := &route.Target{App: a, Port: workload.Port{First: port, Last: port, Handlers: []workload.Handler{workload.HandlerHTTP}}}
	for _, id := range []bourse.MachineID{one, two, three} {
		if r, ok := machines[id]; ok {
			t.Backends = append(t.Backends, route.Backend{Machine: id, Region: r, Instance: "v1", State: bourse.StateStopped})
		}
	}
	return t
}

const three = bourse.MachineID("00000300000003")

type regions = map[bourse.MachineID]bourse.Region

var (
	web   = target(&route.App{ID: "1", Name: "web", Org: "acme"}, 80, regions{one: "gru", two: "mad"})
	other = target(&route.App{ID: "2", Name: "other", Org: "acme"}, 80, regions{three: "ams"})
	at443 = target(&route.App{ID: "2", Name: "other", Org: "acme"}, 443, regions{three: "ams"})
)

func issuer() replay.Issuer { return replay.Issuer{Target: web, Machine: one, Region: "gru", Port: 80} }

func table() apps {
	raw := target(&route.App{ID: "5", Name: "raw", Org: "acme"}, 80, regions{three: "ams"})
	raw.Port.Handlers = []workload.Handler{workload.HandlerPGTLS}
	plain := target(&route.App{ID: "7", Name: "plain", Org: "acme"}, 80, regions{three: "ams"})
	plain.Port.Handlers = nil
	return apps{
		"web":      {web},
		"other":    {at443, other},
		"stranger": {target(&route.App{ID: "3", Name: "stranger", Org: "evil"}, 80, regions{three: "ams"})},
		"apart":    {target(&route.App{ID: "4", Name: "apart", Org: "acme", Network: "own"}, 80, regions{three: "ams"})},
		"raw":      {raw},
		"plain":    {plain},
		"tls":      {target(&route.App{ID: "6", Name: "tls", Org: "acme"}, 443, regions{three: "ams"})},
	}
}

func TestPlan(t *testing.T) {
	all := table()
	for text, want := range map[string]replay.Destination{
		"region=mad":                        {Target: web, Regions: []bourse.Choice{{"mad"}}},
		`region="ams,eu,any"`:               {Target: web, Regions: []bourse.Choice{{"mad"}, {"gru"}}},
		"region=any":                        {Target: web, Regions: []bourse.Choice{{"gru", "mad"}}},
		"instance=00000200000002":           {Target: web, Instance: two},
		"instance=00000100000001":           {Target: web, Instance: one},
		"prefer_instance=00000200000002":    {Target: web, Prefer: two},
		"prefer_instance=0000ff00000002":    {Target: web, Prefer: "0000ff00000002"},
		"elsewhere=true":                    {Target: web, Avoid: one},
		"app=other":                         {Target: other},
		"app=other;region=eu;state=x":       {Target: other, Regions: []bourse.Choice{{"ams"}}},
		"app=other;instance=00000300000003": {Target: other, Instance: three},
		"app=tls":                           {Target: all["tls"][0]},
		"app=plain":                         {Target: all["plain"][0]},
	} {
		got, err := replay.Plan(parsed(t, text), issuer(), all)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.Target != want.Target {
			t.Errorf("%s: target %+v, want %+v", text, got.Target, want.Target)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", text, diff)
		}
	}
}

// TestPlanAtAnyPort checks that the service's port counts if the listener serves all ports.
func TestPlanAtAnyPort(t *testing.T) {
	at := issuer()
	at.Port = 8080
	if got, err := replay.Plan(parsed(t, "app=other"), at, table()); err != nil || got.Target != other {
		t.Errorf("%+v, %v", got.Target, err)
	}
}

func parsed(t *testing.T, text string) *replay.Replay {
	t.Helper()
	r, err := replay.Parse(replay.Header, header("fly-replay", text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPlanRefused(t *testing.T) {
	for text, want := range map[string]string{
		"region=ams": "has no such machine in ams",
		"region=mad;elsewhere=true;instance=00000100000001": "which elsewhere=true excludes",
		"region=mad;instance=00000100000001":                "has no such machine in mad",
		"instance=00000300000003":                           "has no machine 00000300000003",
		"region=gru;elsewhere=true":                         "has no such machine in gru",
		"app=raw":                                           `no app "raw" serves HTTP`,
	} {
		if _, err := replay.Plan(parsed(t, text), issuer(), table()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestPlanAcrossOrganizations checks that an app of another organization or network is treated as nonexistent. The
// errors must differ only in the app's name.
func TestPlanAcrossOrganizations(t *testing.T) {
	none := replayError(t, "app=nothing")
	for _, name := range []string{"stranger", "apart"} {
		for _, more := range []string{"", ";instance=00000300000003", ";region=ams", ";prefer_instance=00000300000003"} {
			if got := replayError(t, "app="+name+more); strings.Replace(got, name, "nothing", 1) != none {
				t.Errorf("app %s: %q, but for a missing app: %q", name, got, none)
			}
		}
	}
	// An app with the same name as a deleted app does not receive the deleted app's requests either.
	all := table()
	all["web"] = []*route.Target{target(&route.App{ID: "9", Name: "web", Org: "acme"}, 80, regions{two: "mad"})}
	if _, err := replay.Plan(parsed(t, "region=any"), issuer(), all); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("another app with this name: %v", err)
	}
}

func replayError(t *testing.T, text string) string {
	t.Helper()
	_, err := replay.Plan(parsed(t, text), issuer(), table())
	if bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Fatalf("%s: %v", text, err)
	}
	return err.Error()
}

func TestPlanFallback(t *testing.T) {
	for fallback, want := range map[replay.Fallback]replay.Destination{
		replay.ForceSelf:  {Target: web, Instance: one},
		replay.PreferSelf: {Target: web, Prefer: one},
		replay.NoFallback: {},
	} {
		got, ok := replay.PlanFallback(&replay.Replay{Fallback: fallback}, issuer())
		if diff := cmp.Diff(want, got); diff != "" || ok != (fallback != replay.NoFallback) {
			t.Errorf("%s: %v, -want +got\n%s", fallback, ok, diff)
		}
	}
}

func TestSource(t *testing.T) {
	at := time.UnixMicro(1700000000123456)
	for state, want := range map[string]string{
		"":               "instance=00000100000001;region=gru;t=1700000000123456",
		"a=b c":          "instance=00000100000001;region=gru;t=1700000000123456;state=a=b c",
		"x;instance=two": `instance=00000100000001;region=gru;t=1700000000123456;state="x;instance=two"`,
		`"\`:             `instance=00000100000001;region=gru;t=1700000000123456;state="\"\\"`,
	} {
		if got := replay.Source(issuer(), at, state); got != want {
			t.Errorf("state %q: %s, want %s", state, got, want)
		}
	}
}

func TestFailed(t *testing.T) {
	for text, want := range map[string]string{
		"app=other;timeout=1s;fallback=force_self":        "app=other;replay_source=00000100000001;reason=timeout;elapsed_ms=1500",
		`region="mad,ams";prefer_instance=00000200000002`: `instance=00000200000002;region="mad,ams";replay_source=00000100000001;reason=timeout;elapsed_ms=1500`,
	} {
		if got := replay.Failed(parsed(t, text), issuer(), replay.TimedOut, 1500*time.Millisecond); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
