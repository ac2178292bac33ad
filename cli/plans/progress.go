package plans

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
)

// tick is the interval between terminal updates.
const tick = 100 * time.Millisecond

// Progress shows the progress of plans. On a terminal, it updates lines in place. Otherwise
// it prints a line for each event, in JSON if --json is set. Its methods are safe for
// concurrent use.
type Progress struct {
	shell *cli.Shell
	drawn bool // lines on the terminal are updated in place

	mu     sync.Mutex
	boards screen
	lines  int // number of lines on the terminal that are updated in place

	end  chan struct{}
	done sync.WaitGroup
}

// Show starts showing the progress of a plan. The caller must call End.
func Show(s *cli.Shell, title string, p *deploy.Plan) *Progress {
	return show(s, screen{title: title, list: []*planProgress{newPlanProgress("", p)}})
}

// ShowAll starts showing the progress of several apps' plans, which are added with
// [Progress.Add]. machines is the total number of machines in these plans. The caller must
// call End.
func ShowAll(s *cli.Shell, title string, machines int) *Progress {
	return show(s, screen{title: title, total: machines, severalApps: true})
}

func show(s *cli.Shell, all screen) *Progress {
	out := &Progress{shell: s, drawn: s.Err.TTY && !s.Err.Dumb && !s.JSON, boards: all, end: make(chan struct{})}
	if out.drawn {
		out.done.Go(out.animate)
	}
	return out
}

// Add adds a plan, and returns a function that receives the plan's events. If a machine
// is also part of an earlier plan for the same app, only the new plan shows it.
func (p *Progress) Add(plan *deploy.Plan) func(run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := newPlanProgress(string(plan.App), plan)
	p.boards.add(b)
	return func(e run.Event) { p.event(b, e) }
}

func (p *Progress) animate() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		p.draw()
		select {
		case <-p.end:
			return
		case <-t.C:
		}
	}
}

// Event receives an event of the plan that was passed to [Show].
func (p *Progress) Event(e run.Event) { p.event(p.boards.list[0], e) }

func (p *Progress) event(b *planProgress, e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shell.JSON {
		_ = p.shell.PrintLine(Line{Event: &e}) // standard output may be closed
		return
	}
	if e.Plan != nil {
		began := b.began
		*b = *newPlanProgress(b.label, e.Plan)
		b.began = began
	}
	e.Text = b.short(&e)
	s := b.apply(e)
	switch {
	case e.Step == run.WholeRun && e.State == run.Waiting && e.Text != "":
		p.say("  " + e.Text)
		return
	case s == nil:
		return
	case !p.drawn:
		if line := b.plain(s, e, p.boards.began()); line != "" {
			p.say(line + p.boards.progress(b, s, &e))
		}
	case e.State == run.Output && e.Line != nil:
		p.say("  " + s.name + ": " + e.Line.Text)
	}
	if e.Evidence == nil {
		return
	}
	if p.drawn {
		p.say(headline(s, &e))
	}
	p.say(evidence(e.Evidence)...)
}

// Say prints lines for the user, above the lines that are updated in place.
func (p *Progress) Say(lines ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(lines...)
}

// say implements Say. The caller must hold p.mu.
func (p *Progress) say(lines ...string) {
	var b strings.Builder
	p.wipe(&b)
	width, _ := p.shell.Err.Size()
	for _, line := range lines {
		line = cli.Clean(p.shell.WithProgramName(line))
		indent := len(line) - len(strings.TrimLeft(line, " ")) + len("  ")
		for _, part := range cli.Wrap(line, width, indent) {
			b.WriteString(part + "\n")
		}
	}
	_, _ = io.WriteString(p.shell.Err, b.String()) // the terminal may be closed
}

// End shows the final state and stops updating it.
func (p *Progress) End() {
	close(p.end)
	p.done.Wait()
	if p.drawn {
		p.draw()
	}
}

func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	width, height := p.shell.Err.Size()
	var b strings.Builder
	p.wipe(&b)
	lines := p.boards.screen(p.shell.Now(), max(width-1, cli.MinWidth), height, p.shell.Err.Color)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	p.lines = len(lines)
	_, _ = io.WriteString(p.shell.Err, b.String())
}

// wipe erases the lines that are updated in place.
func (p *Progress) wipe(b *strings.Builder) {
	if p.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", p.lines)
	}
	p.lines = 0
}

// Line is a line of output with --json. Exactly one of Plan, Event and Result is set.
type Line struct {
	Plan   *deploy.Plan `json:"plan,omitempty"`
	Fits   []Fit        `json:"fits,omitempty"` // set only if Plan is
	Event  *run.Event   `json:"event,omitempty"`
	Result *run.Result  `json:"result,omitempty"`
	// VolumesLeft lists volumes that remain after their machines were destroyed. It is set
	// only if Result is set.
	VolumesLeft []bourse.VolumeID `json:"volumes_left,omitempty"`
}
