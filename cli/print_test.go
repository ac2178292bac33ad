package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// ranked is a decision with everything in it.
func decided() bourse.Decision {
	no := bourse.Refusal{Worker: "gru-3", Region: "gru", Reason: bourse.RefusedResource, Resource: "memory", Wanted: 2048, Free: 512, Detail: "memory: wanted 2 GiB, free 512 MiB"}
	rank := func(w bourse.WorkerID, s float64) bourse.Ranking {
		return bourse.Ranking{Worker: w, Region: "gru", Score: s, Parts: []bourse.ScorePart{
			{Name: "cpu", Value: 0.4, Score: s / 2}, {Name: "memory", Value: 0.2, Score: s / 4}, {Name: "spread", Score: s / 8}, {Name: "load", Value: 0.1, Score: s / 8},
		}}
	}
	return bourse.Decision{
		Order: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", App: "shop", Regions: []bourse.Choice{{"gru"}, {"mad", "cdg"}}, Outcome: bourse.OutcomeFilled,
		Worker: "gru-2", Machine: "148e21ea1d5389",
		Rounds: []bourse.Round{{
			Regions: bourse.Choice{"gru"}, Candidates: 5, Asked: 5, Ranked: []bourse.Ranking{rank("gru-1", 0.912), rank("gru-2", 0.8)},
			Refusals: []bourse.Refusal{
				no,
				{Worker: "gru-4", Region: "gru", Reason: bourse.RefusedUnknown, Resource: "slots", Detail: "the worker knows no slots"},
				{Worker: "gru-5", Region: "gru", Reason: bourse.RefusedNoAnswer, Detail: "no answer within 50ms"},
			},
			Claims: []bourse.ClaimTry{
				{Worker: "gru-1", Refusal: &bourse.Refusal{
					Worker: "gru-1", Region: "gru", Reason: bourse.RefusedResource, Resource: "cpu", Wanted: 1500, Free: 1000, Detail: "cpu: wanted 1.5 cpus, free 1 cpus",
				}, Took: 700 * time.Microsecond},
				{Worker: "gru-2", Took: 1234 * time.Microsecond},
			},
		}},
		Times: bourse.Times{Quote: 1100 * time.Microsecond, Rank: 12 * time.Microsecond, Claim: 900 * time.Microsecond, Start: 1300 * time.Microsecond, Total: 3400 * time.Microsecond},
	}
}

func TestOrderShow(t *testing.T) {
	d := decided()
	got := against(t, replies(http.StatusOK, d), "order", "show", string(d.Order))
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "order_show_wide", got.out) // a pipe is never cut
	var narrow strings.Builder
	if err := printDecision(&narrow, &d, 80); err != nil {
		t.Fatal(err)
	}
	golden(t, "order_show", narrow.String())
}

func TestQuoteNobody(t *testing.T) {
	d := decided()
	d.Outcome, d.Worker, d.Machine, d.Regions = bourse.OutcomeRefused, "", "", []bourse.Choice{{"gru"}}
	d.Rounds[0].Ranked, d.Rounds[0].Claims = nil, nil
	got := against(t, replies(http.StatusOK, d), "quote", "host", "--vm-memory", "2GiB", "--", "true")
	if got.code != 6 {
		t.Errorf("exit status %d, want 6", got.code)
	}
	golden(t, "quote_refused_wide", got.out+"--- stderr\n"+got.err)
}

func TestRefusedRun(t *testing.T) {
	h := replies(http.StatusUnprocessableEntity, machinesapi.ErrorBody{
		Error: "no worker in gru could fill the order", Status: machinesapi.StatusInsufficientCapacity, Code: bourse.CodeInsufficient,
		OrderID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", Refusals: decided().Rounds[0].Refusals,
	})
	got := against(t, h, "machine", "run", "host", "--region", "gru", "--vm-memory", "2GiB", "--", "true")
	if got.code != 6 || got.out != "" {
		t.Errorf("exit status %d, stdout %q; want 6 and nothing", got.code, got.out)
	}
	golden(t, "run_refused_wide", got.err)
}

func machineFixture() machinesapi.Machine {
	exit := bourse.ExitEvent{Exit: bourse.Exit{Code: 3, At: now.Add(-time.Minute)}, Restarting: true, RestartCount: 2}
	m := bourse.Machine{
		ID: "148e21ea1d5389", Name: "quiet-river-1234", App: "shop", Worker: "gru-1", Region: "gru", Order: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5",
		Instance: "01JD3V7K7Y5C5ZQ7W1R2M3N4P6", State: bourse.StateStarted,
		Config: bourse.Config{
			Image: "host", Init: bourse.Init{Cmd: []string{"sh", "-c", "exec sleep 600; echo it's"}}, Metadata: map[string]string{"tier": "web"},
			Requirements: bourse.Requirements{"slots": {Count: 2}},
		},
		Boot: bourse.Boot{Number: 3, PID: 4711, Port: 20001}, CreatedAt: now.Add(-3 * time.Hour), UpdatedAt: now.Add(-time.Minute),
		LastEvents: []bourse.Event{
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P9", Type: bourse.EventStart, State: bourse.StateStarted, Source: bourse.SourceWorker, At: now.Add(-59 * time.Second)},
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P8", Type: bourse.EventExit, State: bourse.StateRestarting, Source: bourse.SourceWorker, At: now.Add(-time.Minute), Exit: &exit},
			{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P7", Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, At: now.Add(-3 * time.Hour)},
		},
	}
	return machinesapi.FromMachine(&m)
}

func TestMachineStatus(t *testing.T) {
	t.Setenv("TZ", "UTC")
	got := against(t, replies(http.StatusOK, machineFixture()), "machine", "status", "148e21ea1d5389", "-a", "shop")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "machine_status", got.out)
}

func TestMachineList(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture()}
	list[1].ID, list[1].Name, list[1].State, list[1].Cordoned = "148e21aabbccdd", "db", bourse.StateStopped, true
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(machinesapi.HeaderUnreachable, "mad-1,mad-2")
		replies(http.StatusOK, list).ServeHTTP(w, r)
	})
	got := against(t, h, "machine", "list", "-a", "shop")
	golden(t, "machine_list", got.out+"--- stderr\n"+got.err)
	if got := against(t, h, "machine", "list", "-q"); got.out != "148e21ea1d5389\n148e21aabbccdd\n" {
		t.Errorf("list -q: %q, want the ids alone", got.out)
	}
	if got := against(t, replies(http.StatusOK, []int{}), "machine", "list", "--json"); got.out != "[]\n" {
		t.Errorf("an empty list as JSON: %q, want []", got.out)
	}
}

// TestHostStatus: what is told of a machine whose host is not heard from says
// so, and since when.
func TestHostStatus(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture(), machineFixture()}
	list[1].HostStatus, list[1].HostHeard = machinesapi.HostUnreachable, now.Add(-12*time.Second).Format(time.RFC3339)
	list[2].HostStatus = machinesapi.HostUnknown
	golden(t, "machine_list_unreachable_wide", against(t, replies(http.StatusOK, list), "machine", "list").out)
	got := against(t, replies(http.StatusOK, list[1]), "machine", "status", "148e21ea1d5389")
	if !strings.Contains(got.out, "host      unreachable, heard 12s ago\n") {
		t.Errorf("status says\n%s", got.out)
	}
}

func TestResolve(t *testing.T) {
	list := []machinesapi.Machine{machineFixture(), machineFixture()}
	list[1].ID, list[1].Name = "148e21aabbccdd", "db"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/machines") {
			replies(http.StatusOK, list).ServeHTTP(w, r)
			return
		}
		replies(http.StatusOK, map[string]string{"id": r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]}).ServeHTTP(w, r)
	})
	for word, want := range map[string]string{"quiet-river-1234": "148e21ea1d5389", "db": "148e21aabbccdd", "148e21aa": "148e21aabbccdd", "00000000000000": "00000000000000"} {
		if got := against(t, h, "machine", "status", word, "--json"); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: exit status %d, %s%s; want machine %s", word, got.code, got.out, got.err, want)
		}
	}
	if got := against(t, h, "machine", "status", "148e21"); got.code != 2 || !strings.Contains(got.err, "148e21ea1d5389, 148e21aabbccdd") {
		t.Errorf("an ambiguous beginning: exit status %d, %q; want 2 and the ids", got.code, got.err)
	}
	if got := against(t, h, "machine", "status", "nope"); got.code != 3 {
		t.Errorf("no such name: exit status %d, want 3", got.code)
	}
}

func TestWorkerList(t *testing.T) {
	list := machinesapi.WorkerList{Workers: []machinesapi.Worker{
		{ID: "gru-1", Region: "gru", Address: "127.0.0.1:40001", Tag: "148e21", Status: machinesapi.WorkerOK, Facts: &bourse.Facts{
			Machines: map[bourse.State]int{bourse.StateStarted: 2, bourse.StateDestroyed: 5},
			Accounts: []bourse.Account{{Resource: "cpu", Total: 4000, Used: 500}, {Resource: "memory", Total: 4096, Used: 2560}, {Resource: "slots", Total: 10, Used: 4}},
		}},
		{ID: "mad-1", Region: "mad", Address: "127.0.0.1:40002", Tag: "2200ff", Status: machinesapi.WorkerUnreachable, Error: "connection refused"},
	}}
	golden(t, "worker_list", against(t, replies(http.StatusOK, list), "worker", "list").out)
	golden(t, "worker_show", against(t, replies(http.StatusOK, list.Workers[0]), "worker", "show", "gru-1").out)
}

func TestText(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{age(59 * time.Second), "59s"},
		{age(61 * time.Minute), "1h01m"},
		{age(50 * time.Hour), "2d"},
		{age(-time.Hour), "0s"},
		{took(900), "0 µs"},
		{took(1500 * time.Microsecond), "1.50 ms"},
		{took(42 * time.Millisecond), "42.0 ms"},
		{took(1500 * time.Millisecond), "1.50 s"},
		{mib(512), "512 MiB"},
		{mib(1536), "1.5 GiB"},
		{mib(1025), "1025 MiB"},
		{mib(3840), "3.75 GiB"},
		{mib(1 << 20), "1 TiB"},
		{mib(0), "0 MiB"},
		{amount("cpu", 62), "0.062 cpus"},
		{amount("slots", 3), "3"},
		{amount("gpu.l40s", 1), "1"},
		{commandLine([]string{"a", "b c", "it's", ""}), `a 'b c' 'it'\''s' ''`},
		{clean("a\x07b\u200bc"), `a\ab\u200bc`},
		{cut("abcdef", 4), "abc…"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestTableFitsTheScreen(t *testing.T) {
	tab := newTable("ID", "DETAIL").narrow(1)
	tab.row("1", strings.Repeat("long ", 40))
	var b strings.Builder
	if err := tab.write(&b, 40); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(line)); n > 41 {
			t.Errorf("line of %d characters on a screen of 40: %q", n, line)
		}
	}
}

func TestOrderShowTellsThatNobodyWasAsked(t *testing.T) {
	d := decided()
	d.Rounds[0].Standing, d.Rounds[0].Asked, d.Rounds[0].Refusals = 312*time.Millisecond, 0, nil
	var out strings.Builder
	if err := printDecision(&out, &d, 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 of 5 workers: 2 yes, 0 no\n", "nobody was asked: by what they said up to 312 ms before, and the claims since\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
