package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

func TestDeploys(t *testing.T) {
	h := newHouse(t)
	t.Run("apps", func(t *testing.T) {
		for _, strategy := range []deploy.Strategy{deploy.Rolling, deploy.Canary, deploy.BlueGreen} {
			t.Run(string(strategy), func(t *testing.T) { t.Parallel(); h.in(t).failsNoRequest(strategy) })
		}
		t.Run("failed command", func(t *testing.T) { t.Parallel(); h.in(t).failedCommand() })
		t.Run("never ready", func(t *testing.T) { t.Parallel(); h.in(t).neverReady() })
	})
}

// failsNoRequest deploys a new version of an app while requests are sent to it. No request may fail.
func (h *house) failsNoRequest(strategy deploy.Strategy) {
	app := bourse.AppName(strategy)
	h.app(app, 3)
	before := h.shape(app)
	l := h.load(app)
	began := time.Now()
	second := h.release(app)
	want := wanted(h, app, "v2", strategy, 3)
	want.Command = command("echo migrated; exit 0")
	var lines []string
	result, err := h.run(h.plan(want, second), run.Options{Release: second.ID, Events: func(e run.Event) {
		if e.State == run.Output {
			lines = append(lines, e.Line.Text)
		}
	}})
	h.Logf("%d steps in %s", len(result.Steps), time.Since(began).Round(time.Millisecond))
	if err != nil || len(result.Silent) > 0 {
		h.Errorf("Run: %v, %+v; want success, with answers from all workers", err, result)
	}
	l.end(h.T)
	if r := h.newest(app); r.Status != release.Complete || !slices.Equal(lines, []string{"migrated"}) {
		h.Errorf("the release is %+v, and its command wrote %q; want complete and \"migrated\"", r, lines)
	}
	if got, want := h.shape(app), strings.ReplaceAll(before, "v1", "v2"); got != want {
		h.Errorf("the app is %s, want %s", got, want)
	}
	if v, err := h.ask(app); v != "v2" || err != nil {
		h.Errorf("a request through the proxy returned %q, %v; want v2", v, err)
	}
}

// neverReady deploys a version that does not become healthy. All changes must be undone,
// and the result must contain the last output of a failed machine.
func (h *house) neverReady() {
	h.app("broken", 2)
	before := h.shape("broken")
	l := h.load("broken")
	want := wanted(h, "broken", brokenVersion, deploy.BlueGreen, 2)
	want.Wait = bourse.Duration(15 * time.Second) // long enough for the program to have written its output, even on a busy host
	var news []run.Event
	result, err := h.run(h.plan(want, h.release("broken")), run.Options{Events: func(e run.Event) { news = append(news, e) }})
	l.end(h.T)
	if bourse.CodeOf(err) != bourse.CodeTimeout || !strings.Contains(err.Error(), "critical") || result.Status != release.Failed {
		h.Errorf("Run: %v, %+v; want a timeout because of a critical check, and a failed release", err, result)
	}
	if got := h.shape("broken"); got != before {
		h.Errorf("the app changed to %s, want %s as before", got, before)
	}
	if !slices.ContainsFunc(result.Failed, func(e run.Evidence) bool {
		return len(e.Events) > 0 && len(e.Lines) > 0 && e.Lines[0].Text == "this is version "+brokenVersion
	}) {
		h.Errorf("evidence about the failed machine: %+v, want its events and its log", result.Failed)
	}
	if !slices.ContainsFunc(news, func(e run.Event) bool { return e.State == run.Waiting && strings.Contains(e.Text, "critical") }) {
		h.Errorf("no event names the check for which the deploy waits: %+v", news)
	}
}

// command returns a release command that runs a line of shell.
func command(line string) *deploy.Command {
	c := bourse.Config{Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 256}}
	c.Init.Exec = []string{"sh", "-c", line}
	return &deploy.Command{Config: c, Timeout: waitTimeout}
}

// failedCommand deploys an app whose release command fails. Nothing may be changed, and the
// result must contain the command's output.
func (h *house) failedCommand() {
	h.app("command", 1)
	before := h.shape("command")
	second := h.release("command")
	want := wanted(h, "command", "v2", deploy.Rolling, 1)
	want.Command = command("echo cannot migrate >&2; exit 3")
	result, err := h.run(h.plan(want, second), run.Options{Release: second.ID})
	if err == nil || !strings.Contains(err.Error(), "status 3") || len(result.Failed) != 1 || len(result.Failed[0].Lines) != 1 ||
		result.Failed[0].Lines[0].Text != "cannot migrate" {
		h.Errorf("Run: %v, %+v; want exit status 3, with the command's output", err, result)
	}
	if r := h.newest("command"); r.Status != release.Failed || !strings.Contains(string(r.Metadata), "status 3") {
		h.Errorf("the release is %s with metadata %s, want failed because of status 3", r.Status, r.Metadata)
	}
	if got := h.shape("command"); got != before {
		h.Errorf("the app changed to %s, want %s as before", got, before)
	}
}
