package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

var statusLine = clitest.Of(NewStatus)

// shopMachines returns the machines of an app whose deploy was interrupted: one fails its
// check, and the worker of another is unreachable.
func shopMachines() []machinesapi.Machine {
	var out []machinesapi.Machine
	add := func(name, group, version string, region bourse.Region, state bourse.State) *machinesapi.Machine {
		m := machinesapi.FromMachine(&bourse.Machine{ID: bourse.MachineID("148e21ea1d53" + string(rune('a'+len(out))) + "0"), App: "shop", Name: name, Region: region, State: state, Worker: "gru-1"})
		m.Config = &bourse.Config{Image: "host", Metadata: map[string]string{deploy.KeyGroup: group, deploy.KeyVersion: version}}
		if group == "web" {
			m.Config.Services = json.RawMessage(`[{"autostart":true,"ports":[{"port":80},{"port":443}]}]`)
			m.Checks = []bourse.CheckStatus{{Name: "http", Status: bourse.CheckPassing}}
		}
		out = append(out, m)
		return &out[len(out)-1]
	}
	add("quiet-river-1234", "web", "4", "gru", bourse.StateStarted).Checks[0] = bourse.CheckStatus{
		Name: "http", Status: bourse.CheckCritical, Output: "503 Service Unavailable from GET http://[fdaa:0:1::3]:8080/health:\n\tthe database does not answer, and the cache is not warm yet\n",
	}
	add("brave-hill-77", "web", "3", "gru", bourse.StateStarted)
	add("cold-lake-5", "web", "3", "mad", bourse.StateStopped)
	add("old-pond-3", "worker", "3", "gru", bourse.StateStarted).HostStatus = machinesapi.HostUnreachable
	return out
}

func shopRelease(status release.Status) machinesapi.ReleaseList {
	return machinesapi.ReleaseList{Releases: []release.Release{{
		ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", App: "shop", Version: 4, Status: status, Image: "registry.example.com/shop:2", User: "ann", CreatedAt: clitest.Now.Add(-time.Minute),
	}}}
}

func TestStatusScreens(t *testing.T) {
	good := shopMachines()[1:3]
	line := statusLine
	line.Screens(t, "status", clitest.Paths(map[string]any{"/v1/apps/shop/machines": good, "/v1/apps/shop/releases": shopRelease(release.Complete)}), "status", "-a", "shop")
	line.Screens(t, "status_none", clitest.Paths(map[string]any{"/v1/apps/shop/machines": []machinesapi.Machine{}, "/v1/apps/shop/releases": machinesapi.ReleaseList{}}), "status", "-a", "shop")
	line.Screens(t, "status_troubled", clitest.Paths(map[string]any{"/v1/apps/shop/machines": shopMachines(), "/v1/apps/shop/releases": shopRelease(release.Interrupted)}), "status", "-a", "shop")
}

// TestStatusOfLostAndStoppedMachines checks that status does not suggest reading a
// machine's logs if its worker is unreachable, and that it does not count the checks of
// stopped machines.
func TestStatusOfLostAndStoppedMachines(t *testing.T) {
	all := shopMachines()
	lost := Status{App: "shop", Groups: groupsOf(all[3:])}
	if got := lost.next(); !slices.Equal(got, []string{"bourse worker list"}) {
		t.Errorf("suggestions for an unreachable worker: %q", got)
	}
	failing := Status{App: "shop", Groups: groupsOf(all[:1])}
	if got := failing.next(); len(got) == 0 || slices.Contains(got, "bourse worker list") {
		t.Errorf("suggestions for a failing check: %q", got)
	}
	all[2].Checks[0].Status = bourse.CheckWarning // workers report this status for machines that are not running
	if stopped := groupsOf(all[2:3]); stopped[0].checks() != "-" || stopped[0].Asleep != 1 {
		t.Errorf("status of a stopped machine: %+v", stopped[0])
	}
}

// TestOneWorker checks that a group whose machines are all on one worker is reported,
// with moves that spread them if other workers would accept some.
func TestOneWorker(t *testing.T) {
	t.Parallel()
	machine := func(id bourse.MachineID, worker bourse.WorkerID, group string) machinesapi.Machine {
		m := machinesapi.FromMachine(&bourse.Machine{ID: id, App: "shop", Region: "gru", State: bourse.StateStarted, Worker: worker})
		m.Config = &bourse.Config{Image: "host", Metadata: map[string]string{deploy.KeyPlatform: deploy.Platform, deploy.KeyGroup: group}}
		return m
	}
	const a, b, c = "148e21ea1d53a0", "148e21ea1d53b0", "148e21ea1d53c0"
	standby := machine(b, "gru-1", "web")
	standby.Config.Standbys = []bourse.MachineID{a}
	stopped := machine(b, "gru-1", "web")
	stopped.State = bourse.StateStopped
	mine := machine(b, "gru-1", "web")
	mine.Config.Metadata = nil
	for name, tt := range map[string]struct {
		machines []machinesapi.Machine
		ranked   []bourse.WorkerID
		want     []Move
	}{
		"two":                        {[]machinesapi.Machine{machine(a, "gru-1", "web"), machine(b, "gru-1", "web")}, []bourse.WorkerID{"gru-1", "gru-2"}, []Move{{Machine: b, To: "gru-2"}}},
		"three on three":             {[]machinesapi.Machine{machine(a, "gru-1", "web"), machine(b, "gru-1", "web"), machine(c, "gru-1", "web")}, []bourse.WorkerID{"gru-3", "gru-2"}, []Move{{Machine: b, To: "gru-3"}, {Machine: c, To: "gru-2"}}},
		"two workers":                {[]machinesapi.Machine{machine(a, "gru-1", "web"), machine(b, "gru-2", "web")}, []bourse.WorkerID{"gru-2"}, nil},
		"no other worker":            {[]machinesapi.Machine{machine(a, "gru-1", "web"), machine(b, "gru-1", "web")}, []bourse.WorkerID{"gru-1"}, nil},
		"one each":                   {[]machinesapi.Machine{machine(a, "gru-1", "web"), machine(b, "gru-1", "worker")}, []bourse.WorkerID{"gru-2"}, nil},
		"a machine and its standby":  {[]machinesapi.Machine{machine(a, "gru-1", "web"), standby}, []bourse.WorkerID{"gru-2"}, nil},
		"a running machine is moved": {[]machinesapi.Machine{stopped, machine(a, "gru-1", "web")}, []bourse.WorkerID{"gru-2"}, []Move{{Machine: a, To: "gru-2"}}},
		"two stopped":                {[]machinesapi.Machine{stopped, stopped}, []bourse.WorkerID{"gru-2"}, []Move{{Machine: b, To: "gru-2", Start: true}}},
		"one not deployed":           {[]machinesapi.Machine{machine(a, "gru-1", "web"), mine}, []bourse.WorkerID{"gru-2"}, nil},
	} {
		quote := bourse.Decision{Outcome: bourse.OutcomeQuoted, Rounds: make([]bourse.Round, 1)}
		for _, w := range tt.ranked {
			quote.Rounds[0].Ranked = append(quote.Rounds[0].Ranked, bourse.Ranking{Worker: w})
		}
		mux := http.NewServeMux()
		mux.Handle("POST /v1/apps/shop/quotes", clitest.Replies(http.StatusOK, quote))
		mux.Handle("/", clitest.Paths(map[string]any{"/v1/apps/shop/machines": tt.machines, "/v1/apps/shop/releases": shopRelease(release.Complete)}))
		var st Status
		if err := json.Unmarshal([]byte(statusLine.Against(t, mux, "status", "-a", "shop", "--json").Out), &st); err != nil {
			t.Fatal(err)
		}
		var moves []Move
		for _, g := range st.Groups {
			if g.OneWorker != nil {
				moves = append(moves, g.OneWorker.Moves...)
			}
		}
		if diff := cmp.Diff(tt.want, moves); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		text := statusLine.Against(t, mux, "status", "-a", "shop").Out
		for _, m := range tt.want {
			if command := "bourse machine move -a shop " + string(m.Machine) + " --to " + string(m.To); !strings.Contains(text, command) {
				t.Errorf("%s: the output does not contain %q:\n%s", name, command, text)
			}
		}
	}
}

// TestWatchFrames checks the frames that a terminal shows while an app is watched,
// including one after the API has stopped answering.
func TestWatchFrames(t *testing.T) {
	over := errors.New("over")
	follow := func(s *cli.Shell, looks ...error) error {
		st := Status{App: "shop", Groups: groupsOf(shopMachines()), Release: &shopRelease(release.Interrupted).Releases[0]}
		n := 0
		w := watch{shell: s, look: func() (Status, error) { return st, looks[n] }, wait: func(context.Context) error {
			if n++; n == len(looks) {
				return over
			}
			return nil
		}}
		if err := w.run(t.Context()); !errors.Is(err, over) {
			return err
		}
		return nil
	}
	for _, width := range clitest.Widths {
		clitest.Screen(t, "status_watch", width, clitest.Drawn(t, width, func(s *cli.Shell) error { return follow(s, nil, nil) }))
		clitest.Screen(t, "status_watch_lost", width, clitest.Drawn(t, width, func(s *cli.Shell) error {
			return follow(s, nil, bourse.Errorf(bourse.CodeUnavailable, "no answer from http://127.0.0.1:4280"))
		}))
	}
	low := clitest.Drawn(t, 80, func(s *cli.Shell) error {
		s.Out.CurrentSize = func() (int, int) { return 40, 8 }
		return follow(s, nil)
	})
	for line := range strings.Lines(low) {
		if n := len([]rune(line)); n > 41 {
			t.Errorf("a line has %d characters, want at most 40: %q", n-1, line)
		}
	}
	if n := strings.Count(low, "\n"); n > 7 {
		t.Errorf("%d lines, want at most 7:\n%s", n, low)
	}
	if got := clitest.On(t, 0, func(s *cli.Shell) error { return follow(s, nil, nil, nil) }); strings.Count(got, "app      shop") != 1 {
		t.Errorf("an unchanged status was printed again:\n%s", got)
	}
}
