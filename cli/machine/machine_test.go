package machine

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestRefusedRun(t *testing.T) {
	h := clitest.Replies(http.StatusUnprocessableEntity, machinesapi.ErrorBody{
		Error: "no worker in gru could fill the order", Status: machinesapi.StatusInsufficientCapacity, Code: bourse.CodeInsufficient,
		OrderID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", Refusals: clitest.Decision().Rounds[0].Refusals,
	})
	got := line.Against(t, h, "machine", "run", "host", "--region", "gru", "--vm-memory", "2GiB", "--", "true")
	if got.Code != 6 || got.Out != "" {
		t.Errorf("exit status %d, stdout %q; want 6 and no output", got.Code, got.Out)
	}
	clitest.Golden(t, "run_refused_wide", got.Err)
}

func machineFixture() machinesapi.Machine {
	exit := bourse.ExitEvent{Exit: bourse.Exit{Code: 3, At: clitest.Now.Add(-time.Minute)}, Restarting: true, RestartCount: 2}
	m := bourse.Machine{
		ID: "148e21ea1d5389", Name: "quiet-river-1234", App: "shop", Worker: "gru-1", Region: "gru", Order: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5",
		Instance: "01JD3V7K7Y5C5ZQ7W1R2M3N4P6", State: bourse.StateStarted,
		Config: bourse.Config{
			Image: "host", Init: bourse.Init{Cmd: []string{"sh", "-c", "exec sleep 600; echo it's"}}, Metadata: map[string]string{"tier": "web"},
			Requirements: bourse.Requirements{"slots": {Count: 2}},
		},
		Boot: bourse.Boot{Number: 3, PID: 4711, Port: 20001}, CreatedAt: clitest.Now.Add(-3 * time.Hour), UpdatedAt: clitest.Now.Add(-time.Minute),
		LastEvents: []bourse.Event{
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P9", Type: bourse.EventStart, State: bourse.StateStarted, Source: bourse.SourceWorker, At: clitest.Now.Add(-59 * time.Second)},
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P8", Type: bourse.EventExit, State: bourse.StateRestarting, Source: bourse.SourceWorker, At: clitest.Now.Add(-time.Minute), Exit: &exit},
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P7", Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, At: clitest.Now.Add(-3 * time.Hour)},
		},
	}
	return machinesapi.FromMachine(&m)
}

func TestMachineStatus(t *testing.T) {
	t.Setenv("TZ", "UTC")
	got := line.Against(t, clitest.Replies(http.StatusOK, machineFixture()), "machine", "status", "148e21ea1d5389", "-a", "shop")
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "machine_status", got.Out)
}

// lives returns a machine for each condition that a list shows differently.
func lives() []machinesapi.Machine {
	at := clitest.Now.Add(-time.Minute)
	var out []machinesapi.Machine
	for i, l := range []struct {
		name, image string
		state       bourse.State
		starts      int
		requested   bool
		exit        *bourse.Exit
	}{
		{"web-1", "host", bourse.StateStarted, 1, false, nil},
		{"web-2", "registry.example/team/shop:2026-11-21", bourse.StateStarted, 4, false, nil},
		{"loops", "host", bourse.StateRestarting, 3, false, &bourse.Exit{Code: 1, At: at}},
		{"done", "host", bourse.StateStopped, 1, false, &bourse.Exit{At: at}},
		{"gave-up", "host", bourse.StateStopped, 11, false, &bourse.Exit{Code: 1, At: at}},
		{"hungry", "host", bourse.StateStopped, 1, false, &bourse.Exit{Code: -1, Signal: 9, OOMKilled: true, At: at}},
		{"crashed", "host", bourse.StateStopped, 1, false, &bourse.Exit{Code: -1, Signal: 11, At: at}},
		{"asked", "host", bourse.StateStopped, 2, true, &bourse.Exit{Code: -1, Signal: 15, At: at}},
		{"no-such-file", "host", bourse.StateFailed, 1, false, &bourse.Exit{Code: -1, Error: "exec: \"serve\": executable file not found in $PATH, looked for in /usr/bin and /bin", At: at}},
		{"a-name-of-thirty-characters-12", "nginx", bourse.StateCreated, 0, false, nil},
	} {
		m := bourse.Machine{
			ID: bourse.MachineID(fmt.Sprintf("148e21ea1d53%02x", i)), Name: l.name, App: "shop", Worker: "gru-1", Region: "gru", State: l.state,
			Config: bourse.Config{Image: l.image}, Boot: bourse.Boot{Number: l.starts, Requested: l.requested, Exit: l.exit},
			CreatedAt: clitest.Now.Add(-time.Duration(i+1) * 40 * time.Minute),
		}
		if m.State == bourse.StateStarted {
			m.Boot.Port = 20001 + i
		}
		out = append(out, machinesapi.FromMachine(&m))
	}
	return out
}

// TestMachineListScreens checks that a list shows each machine's condition at every
// terminal width.
func TestMachineListScreens(t *testing.T) {
	line.Screens(t, "machine_list", clitest.Replies(http.StatusOK, lives()), "machine", "list", "-a", "shop")
	apps := lives()[:3]
	apps[1].App = "a-shop-with-a-rather-long-name"
	line.Screens(t, "machine_list_all_apps", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/machines" || r.URL.Query().Get("worker") != "gru-1" {
			t.Errorf("asks for %s", r.URL)
		}
		clitest.Replies(http.StatusOK, apps).ServeHTTP(w, r)
	}), "machine", "list", "--all-apps", "--worker", "gru-1")
	if got := line.Run(t, "machine", "list", "-a", "shop", "-A"); got.Code != 2 || !strings.Contains(got.Err, "--app and --all-apps are mutually exclusive") {
		t.Errorf("--app and --all-apps: %+v", got)
	}
}

// TestMachineEvents checks the list of a machine's events, whose times include the
// zone.
func TestMachineEvents(t *testing.T) {
	m := machineFixture()
	pulled := bourse.Event{Type: bourse.EventPull, State: bourse.StateStarting, Source: bourse.SourceWorker, At: clitest.Now.Add(-2 * time.Hour), Pull: &bourse.PullEvent{Image: "nginx", Bytes: 10 << 20, Took: 3 * time.Second, Done: true}}
	killed := bourse.Event{Type: bourse.EventExit, State: bourse.StateStopped, Source: bourse.SourceWorker, At: clitest.Now, Exit: &bourse.ExitEvent{Exit: bourse.Exit{Code: -1, Signal: 9, OOMKilled: true, At: clitest.Now}}}
	asked := bourse.Event{Type: bourse.EventExit, State: bourse.StateStopped, Source: bourse.SourceWorker, At: clitest.Now, Exit: &bourse.ExitEvent{Exit: bourse.Exit{Code: -1, Signal: 15, At: clitest.Now}, RequestedStop: true}}
	events := append(machinesapi.FromEvents([]bourse.Event{killed, asked, pulled}), m.Events...)
	line.Screens(t, "machine_events", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/148e21ea1d5389/events") || r.URL.Query().Get("limit") != "1000" {
			t.Errorf("asks for %s", r.URL)
		}
		clitest.Replies(http.StatusOK, events).ServeHTTP(w, r)
	}), "machine", "events", "148e21ea1d5389")
	if got := line.Run(t, "machine", "events", "-n", "0", "148e21ea1d5389"); got.Code != 2 || !strings.Contains(got.Err, "--limit 0: use 1 to 1000") {
		t.Errorf("--limit 0: %+v", got)
	}
}

func TestMachineList(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture()}
	list[1].ID, list[1].Name, list[1].State, list[1].Cordoned = "148e21aabbccdd", "db", bourse.StateStopped, true
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(machinesapi.HeaderUnreachable, "mad-1,mad-2")
		clitest.Replies(http.StatusOK, list).ServeHTTP(w, r)
	})
	got := line.Against(t, h, "machine", "list", "-a", "shop")
	clitest.Golden(t, "machine_list_wide", got.Out+"--- stderr\n"+got.Err)
	if got := line.Against(t, h, "machine", "list", "-q"); got.Out != "148e21ea1d5389\n148e21aabbccdd\n" {
		t.Errorf("list -q: %q, want only the ids", got.Out)
	}
	if got := line.Against(t, clitest.Replies(http.StatusOK, []int{}), "machine", "list", "--json"); got.Out != "[]\n" {
		t.Errorf("an empty list as JSON: %q, want []", got.Out)
	}
}

// TestHostStatus checks that data about a machine whose host does not answer is marked with
// the time of the last contact.
func TestHostStatus(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture(), machineFixture()}
	list[1].HostStatus, list[1].HostHeard = machinesapi.HostUnreachable, clitest.Now.Add(-12*time.Second).Format(time.RFC3339)
	list[2].HostStatus = machinesapi.HostUnknown
	clitest.Golden(t, "machine_list_unreachable_wide", line.Against(t, clitest.Replies(http.StatusOK, list), "machine", "list").Out)
	got := line.Against(t, clitest.Replies(http.StatusOK, list[1]), "machine", "status", "148e21ea1d5389")
	if !strings.Contains(got.Out, "host      unreachable, last heard from 12s ago\n") {
		t.Errorf("unexpected status:\n%s", got.Out)
	}
}

func TestResolve(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture()}
	list[1].ID, list[1].Name = "148e21aabbccdd", "db"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/machines") {
			clitest.Replies(http.StatusOK, list).ServeHTTP(w, r)
			return
		}
		clitest.Replies(http.StatusOK, map[string]string{"id": r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]}).ServeHTTP(w, r)
	})
	for word, want := range map[string]string{"quiet-river-1234": "148e21ea1d5389", "db": "148e21aabbccdd", "148e21aa": "148e21aabbccdd", "00000000000000": "00000000000000"} {
		if got := line.Against(t, h, "machine", "status", word, "--json"); got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("%s: exit status %d, %s%s; want machine %s", word, got.Code, got.Out, got.Err, want)
		}
	}
	if got := line.Against(t, h, "machine", "status", "148e21"); got.Code != 2 || !strings.Contains(got.Err, "148e21ea1d5389, 148e21aabbccdd") {
		t.Errorf("ambiguous prefix: exit status %d, %q; want 2 and the ids", got.Code, got.Err)
	}
	if got := line.Against(t, h, "machine", "status", "nope"); got.Code != 3 {
		t.Errorf("unknown name: exit status %d, want 3", got.Code)
	}
}

func TestMachineStats(t *testing.T) {
	u := machinesapi.Usage{CPUs: 0.254, CPULimit: 1, Memory: 100 << 20, MemLimit: 256 << 20, PIDs: 7, Read: -1, Written: 4096, Throttled: 1500}
	got := line.Against(t, clitest.Replies(http.StatusOK, u), "machine", "stats", "148e21ea1d5389", "-a", "shop")
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "machine_stats", got.Out)
}

// TestRunMountsAnUnusedVolume checks that "machine run" mounts the first unused volume if
// several volumes have the given name.
func TestRunMountsAnUnusedVolume(t *testing.T) {
	volume := func(id bourse.VolumeID, state bourse.VolumeState, machine bourse.MachineID) machinesapi.Volume {
		return machinesapi.FromVolume(&bourse.Volume{ID: id, App: "shop", State: state, Machine: machine, Spec: bourse.VolumeOrder{Name: "data"}})
	}
	used, filled := volume("vol_0abcd0123456789a", bourse.VolumeCreated, "148e21ea1d5389"), volume("vol_0abce0123456789b", bourse.VolumeHydrating, "")
	got := line.Against(t, clitest.Replies(http.StatusOK, []machinesapi.Volume{used, filled}), "machine", "run", "nginx", "-a", "shop", "-v", "data:/data")
	if got.Code == 0 || !strings.Contains(got.Err, "no unused volume") {
		t.Errorf("app with one volume in use and one being filled: %+v, want an error", got)
	}
}

func TestCommandLine(t *testing.T) {
	if got, want := commandLine([]string{"a", "b c", "it's", ""}), `a 'b c' 'it'\''s' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVolumeFlag(t *testing.T) {
	if v, p, err := parseVolume("data:/var/lib/x"); v != "data" || p != "/var/lib/x" || err != nil {
		t.Errorf("%q, %q, %v", v, p, err)
	}
	for _, bad := range []string{"", "data", "data:", ":/x", "data:x"} {
		if _, _, err := parseVolume(bad); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

// TestDestroyChecksBeforeConfirming checks that the command asks for confirmation only if
// the machine can be destroyed.
func TestDestroyChecksBeforeConfirming(t *testing.T) {
	for state, want := range map[bourse.State]struct {
		code int
		text string
	}{
		bourse.StateStarted: {5, "error: machine 148e21ea1d5389: it is started\n  try: bourse machine destroy 148e21ea1d5389 --force\n"},
		bourse.StateStopped: {130, "destroy 148e21ea1d5389? [y/N] error: canceled: nothing was changed\n"},
	} {
		m := machineFixture()
		m.State = state
		got := line.AtTerminal(t, clitest.Replies(http.StatusOK, m), "n\n", "machine", "destroy", "148e21ea1d5389")
		if got.Code != want.code || got.Err != want.text {
			t.Errorf("%s: exit status %d, %q; want %d, %q", state, got.Code, got.Err, want.code, want.text)
		}
	}
}
