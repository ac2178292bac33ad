package plans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestMain(m *testing.M) { clitest.InUTC(m) }

// shop returns a plan for an app: it runs a release command, updates two machines of group
// web one after the other, creates a machine with a volume in another region, and destroys
// a machine of a group that no longer exists.
func shop() *deploy.Plan {
	config := &bourse.Config{Image: "registry.example.com/shop:2", Guest: &bourse.Guest{CPUKind: bourse.CPUShared, CPUs: 1, MemoryMB: 256}}
	made := 6
	volume := 5
	why := "image changed from registry.example.com/shop:1 to registry.example.com/shop:2"
	return &deploy.Plan{App: "shop", Steps: []deploy.Step{
		{ID: 0, Do: deploy.RunCommand{Config: config}, Group: "web", Region: "gru", Why: "the release command"},
		{ID: 1, Do: deploy.UpdateMachine{Config: config}, After: []int{0}, Group: "web", Region: "gru", Machine: "148e21ea1d5301", Name: "quiet-river-1234", Why: why},
		{ID: 2, Do: deploy.AwaitReady{}, After: []int{1}, Group: "web", Region: "gru", Machine: "148e21ea1d5301", Name: "quiet-river-1234"},
		{ID: 3, Do: deploy.UpdateMachine{Config: config}, After: []int{2}, Group: "web", Region: "gru", Machine: "148e21ea1d5302", Name: "brave-hill-77", Why: why},
		{ID: 4, Do: deploy.AwaitReady{}, After: []int{3}, Group: "web", Region: "gru", Machine: "148e21ea1d5302", Name: "brave-hill-77"},
		{ID: 5, Do: deploy.MakeVolume{Name: "data", SizeGB: 1}, After: []int{0}, Group: "web", Region: "mad", Why: "it mounts data"},
		{ID: 6, Do: deploy.MakeMachine{Config: config, Volume: &volume}, After: []int{5}, Group: "web", Region: "mad", Why: "group web in mad is scaled from 0 to 1"},
		{ID: 7, Do: deploy.AwaitReady{}, After: []int{6}, Group: "web", Region: "mad", MadeBy: &made},
		{ID: 8, Do: deploy.DestroyMachine{}, After: []int{4, 7}, Group: "old", Region: "gru", Machine: "148e21ea1d5303", Name: "old-pond-3", Why: "group old is no longer wanted"},
	}, Warnings: []string{"machine wild-wood-9 is not looked after by deploys: it stays as it is"}}
}

func fits() []Fit {
	return []Fit{
		{Group: "web", Region: "gru", Count: 1, Workers: []bourse.WorkerID{"gru-1"}},
		{Group: "web", Region: "mad", Count: 1, Refusals: []bourse.Refusal{{Worker: "mad-1", Detail: "memory: wanted 256 MiB, free 128 MiB"}}},
	}
}

// outputOn calls show with a shell whose screen has the given width, and returns the output.
func outputOn(t *testing.T, width int, show func(*cli.Shell) error) string {
	t.Helper()
	s := &cli.Shell{Env: cli.Env{Now: func() time.Time { return clitest.Now }}}
	var out, errs *bytes.Buffer
	s.Out, out = clitest.Buffer("")
	s.Err, errs = clitest.Buffer("")
	s.Out.Width, s.Err.Width = width, width
	if err := show(s); err != nil {
		t.Fatal(err)
	}
	return out.String() + errs.String()
}

// screens compares the output of show on screens of 80 and 200 columns with golden files.
func screens(t *testing.T, name string, show func(*cli.Shell) error) {
	t.Helper()
	for width, suffix := range map[int]string{80: ".80", 200: ".200.wide"} {
		got := outputOn(t, width, show)
		clitest.Golden(t, name+suffix, got)
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
				t.Errorf("%s: a line has %d characters on a screen of %d columns: %s", name, n, width, line)
			}
		}
	}
}

func TestPlanPrinted(t *testing.T) {
	t.Parallel()
	screens(t, "plan", func(s *cli.Shell) error { return Print(s, shop(), fits()) })
	screens(t, "plan_nothing", func(s *cli.Shell) error { return Print(s, &deploy.Plan{App: "shop"}, nil) })
	refused := shop()
	refused.Refused = []string{"group web: a canary cannot have a volume: use another strategy"}
	screens(t, "plan_refused", func(s *cli.Shell) error { return Print(s, refused, nil) })
}

// moment returns an event that happens ms milliseconds after the first one.
func moment(step int, ms int, state run.State, text string) run.Event {
	return run.Event{Step: step, State: state, At: clitest.Now.Add(time.Duration(ms) * time.Millisecond), Text: text}
}

// halfway returns the events up to the time when one machine has been updated.
func halfway() []run.Event {
	return []run.Event{
		moment(0, 0, run.Running, ""),
		moment(0, 1200, run.Done, ""),
		moment(1, 1200, run.Waiting, "its lease is held by ann, until 12:01:30"),
		moment(5, 1210, run.Running, ""),
		moment(5, 1300, run.Done, ""),
		moment(1, 2200, run.Running, ""),
		moment(6, 1310, run.Running, ""),
		moment(6, 3100, run.Done, ""),
		moment(7, 3100, run.Running, "check http: connection refused"),
		moment(1, 4200, run.Done, ""),
		moment(2, 4200, run.Running, "check http: 503 Service Unavailable from GET http://[fdaa:0:1::3]:8080/health, 1 of 2 checks pass"),
	}
}

func success() []run.Event {
	return append(halfway(),
		moment(2, 5200, run.Done, ""), moment(7, 5300, run.Done, ""), moment(3, 5200, run.Running, ""), moment(3, 7000, run.Done, ""),
		moment(4, 7000, run.Running, ""), moment(4, 8100, run.Done, ""), moment(8, 8100, run.Running, ""), moment(8, 8200, run.Done, ""))
}

func failure() []run.Event {
	failed := moment(2, 24200, run.Failed, "await ready quiet-river-1234 (148e21ea1d5301): not ready after 20s: check http is critical: \"503 Service Unavailable\"")
	failed.Evidence = &run.Evidence{
		Machine: "148e21ea1d5301", State: bourse.StateStarted,
		Checks: []bourse.CheckStatus{{Name: "http", Status: bourse.CheckCritical, Output: "503 Service Unavailable"}},
		Events: []machinesapi.Event{
			{Type: bourse.EventStart, Status: bourse.StateStarted, Timestamp: clitest.Now.UnixMilli() + 4200},
			{Type: bourse.EventUpdate, Status: bourse.StateReplacing, Timestamp: clitest.Now.UnixMilli() + 2200},
		},
		Lines: []machinesapi.LogLine{{Text: "listening on :8080"}, {Text: "database: \x1b[31mno such host\x1b[0m"}},
	}
	return append(halfway(),
		moment(7, 5300, run.Done, ""), failed, moment(run.WholeRun, 24200, run.Undoing, ""),
		moment(1, 24300, run.Undoing, ""), moment(6, 24300, run.Undoing, ""),
		moment(1, 26000, run.Undone, ""), moment(6, 26100, run.Undone, ""), moment(5, 26100, run.Undoing, ""), moment(5, 26200, run.Undone, ""))
}

func boardAfter(events []run.Event) *planProgress {
	b := newPlanProgress("", shop())
	for _, e := range events {
		b.apply(e)
	}
	return b
}

// screen returns the lines that show the progress of a single plan.
func (b *planProgress) screen(now time.Time, width, height int, color bool) []string {
	x := screen{title: "release v4 of shop", list: []*planProgress{b}}
	return x.screen(now, width, height, color)
}

// TestScreens compares screens at fixed times with golden files.
func TestScreens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events []run.Event
		at     time.Duration
	}{
		"progress": {halfway(), 4900 * time.Millisecond},
		"success":  {success(), 8200 * time.Millisecond},
		"failure":  {failure(), 26200 * time.Millisecond},
		"nothing":  {nil, 0},
	} {
		b := boardAfter(tt.events)
		screens(t, "screen_"+name, func(s *cli.Shell) error {
			for _, line := range b.screen(clitest.Now.Add(tt.at), s.Err.Width, 0, false) {
				fmt.Fprintln(s.Err, line)
			}
			return nil
		})
	}
}

// TestEveryActionHasWords checks that every action has words that describe it.
func TestEveryActionHasWords(t *testing.T) {
	t.Parallel()
	all := deploy.Actions()
	for _, do := range all {
		if weight(do) < 0 {
			t.Errorf("no words for %q", do)
		}
	}
	if len(actions) != len(all) {
		t.Errorf("words for %d actions, want %d", len(actions), len(all))
	}
}

// TestEventsOfUnknownSteps checks that events of steps that are not part of the plan change
// nothing.
func TestEventsOfUnknownSteps(t *testing.T) {
	t.Parallel()
	events := halfway()
	before := boardAfter(events).screen(clitest.Now, 120, 0, false)
	for _, step := range []int{-2, len(shop().Steps), 1000} {
		for _, state := range []run.State{run.Running, run.Waiting, run.Output, run.Done, run.Failed, run.Undoing, run.Undone, run.Left} {
			e := moment(step, 4900, state, "it stopped")
			b := boardAfter(append(slices.Clone(events), e))
			if after := b.screen(clitest.Now, 120, 0, false); !slices.Equal(after, before) {
				t.Errorf("%s of step %d changed the screen to %q, want %q", state, step, after, before)
			}
			outputOn(t, 80, func(s *cli.Shell) error {
				progress := Show(s, "release v4 of shop", shop())
				defer progress.End()
				progress.Event(e)
				return nil
			})
		}
	}
}

// TestColorsDoNotChangeTheText checks that the lines are the same with and without colors.
func TestColorsDoNotChangeTheText(t *testing.T) {
	t.Parallel()
	b := boardAfter(failure())
	now := clitest.Now.Add(30 * time.Second)
	plain, painted := b.screen(now, 120, 0, false), b.screen(now, 120, 0, true)
	for i := range painted {
		text := painted[i]
		for _, code := range []string{"31", "32", "33", "2", "0"} {
			text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
		}
		if text != plain[i] {
			t.Errorf("with colors %q, without %q", text, plain[i])
		}
	}
	if !strings.Contains(strings.Join(painted, ""), "\x1b[31m") {
		t.Error("no line is red")
	}
}

// TestLowScreen checks that the least interesting rows are omitted if the screen has too
// few lines.
func TestLowScreen(t *testing.T) {
	t.Parallel()
	b := boardAfter(halfway())
	lines := b.screen(clitest.Now.Add(5*time.Second), 80, 7, false)
	if len(lines) > 6 {
		t.Errorf("%d lines on a screen of 7:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"quiet-river-1234", "checking", "and 2 more"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing:\n%s", want, all)
		}
	}
	if strings.Contains(all, "release command") {
		t.Errorf("a completed row is shown:\n%s", all)
	}
}

// TestPlainLines checks that without a terminal, each event is printed as a line.
func TestPlainLines(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]run.Event{"success": success(), "failure": failure()} {
		got := outputOn(t, 0, func(s *cli.Shell) error {
			p := Show(s, "release v4 of shop", shop())
			for _, e := range events {
				p.Event(e)
				p.Event(e) // a repeated event is printed once
			}
			p.End()
			return nil
		})
		clitest.Golden(t, "plain_"+name+".wide", got)
	}
}

// TestJSONLines checks that with --json, each event is printed as a line of JSON.
func TestJSONLines(t *testing.T) {
	t.Parallel()
	got := outputOn(t, 0, func(s *cli.Shell) error {
		s.JSON = true
		p := Show(s, "release v4 of shop", shop())
		for _, e := range success() {
			p.Event(e)
		}
		p.End()
		return nil
	})
	lines := slices.Collect(strings.Lines(got))
	if len(lines) != len(success()) || !strings.HasPrefix(lines[0], `{"event":{"at":"2026-11-21T12:00:00Z","step":0,"state":"running"`) {
		t.Errorf("%d lines:\n%s", len(lines), got)
	}
}

// TestLinesAreUpdatedInPlace checks that a terminal's lines are updated in place: at the end it shows only the last
// state.
func TestLinesAreUpdatedInPlace(t *testing.T) {
	t.Parallel()
	got := outputOn(t, 80, func(s *cli.Shell) error {
		s.Err.TTY = true
		p := Show(s, "release v4 of shop", shop())
		for _, e := range success() {
			p.Event(e)
		}
		p.Say("a line above")
		p.End()
		return nil
	})
	at := strings.LastIndex(got, "\x1b[J")
	if at < 0 {
		t.Fatalf("no line was updated in place: %q", got)
	}
	if last := got[at:]; strings.Count(last, "quiet-river-1234") != 1 || strings.Contains(last, "checking") || !strings.Contains(last, "5 of 5 done") {
		t.Errorf("the final screen is %q", last)
	}
	if strings.Count(got, "a line above\n") != 1 {
		t.Errorf("%q", got)
	}
}

type quotes func(machinesapi.CreateMachine) (machinesapi.QuoteReply, error)

func (q quotes) Quote(_ context.Context, _ bourse.AppName, in machinesapi.CreateMachine) (machinesapi.QuoteReply, error) {
	return q(in)
}

// TestFits checks that only one quote is requested for equal machines.
func TestFits(t *testing.T) {
	t.Parallel()
	p := shop()
	p.Steps = append(p.Steps, p.Steps[6], p.Steps[6])
	asked := make(chan string, 10)
	api := quotes(func(in machinesapi.CreateMachine) (machinesapi.QuoteReply, error) {
		asked <- in.Region
		switch in.Region {
		case "gru":
			return machinesapi.QuoteReply{Decision: bourse.Decision{Outcome: bourse.OutcomeQuoted, Rounds: []bourse.Round{{Ranked: []bourse.Ranking{{Worker: "gru-1"}, {Worker: "gru-2"}}}}}}, nil
		}
		return machinesapi.QuoteReply{}, errors.New("no answer")
	})
	got := Fits(t.Context(), api, p)
	if len(asked) != 2 || len(got) != 2 || got[1].Count != 3 || !got[0].Fit() || got[1].Fit() || FirstWithoutRoom(got) != &got[1] {
		t.Errorf("%d quotes requested, %+v", len(asked), got)
	}
	if lines := got[0].lines(); lines[0] != "fits: 1 of group web in gru: 2 workers would accept one, best gru-1" {
		t.Errorf("%q", lines)
	}
}
