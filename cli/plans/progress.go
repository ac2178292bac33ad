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

// tick is how often a terminal is drawn over: the longest without a sign of life.
const tick = 100 * time.Millisecond

// Progress shows how a plan is carried out: on a terminal lines that are drawn over, on
// anything else a line for each thing that happens; with --json each event as one
// line of JSON. Its methods may be called at the same time.
type Progress struct {
	shell *cli.Shell
	drawn bool // the terminal's cursor can be moved

	mu     sync.Mutex
	boards boards
	lines  int // on the screen, to be drawn over

	end  chan struct{}
	done sync.WaitGroup
}

// Show begins to show a plan; title says what it is of. End ends it.
func Show(s *cli.Shell, title string, p *deploy.Plan) *Progress {
	return show(s, boards{title: title, list: []*board{newBoard("", p)}})
}

// ShowAll begins to show plans of several apps, which Add adds; in all they are about so
// many machines. End ends it.
func ShowAll(s *cli.Shell, title string, machines int) *Progress {
	return show(s, boards{title: title, total: machines, many: true})
}

func show(s *cli.Shell, all boards) *Progress {
	out := &Progress{shell: s, drawn: s.Err.TTY && !s.Err.Dumb && !s.JSON, boards: all, end: make(chan struct{})}
	if out.drawn {
		out.done.Go(out.animate)
	}
	return out
}

// Add shows one more plan, of an app, and returns what takes its events. Machines that
// a former plan of the app is about too are shown as this one's.
func (p *Progress) Add(plan *deploy.Plan) func(run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := newBoard(string(plan.App), plan)
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

// Event shows what has happened to the plan of [Show].
func (p *Progress) Event(e run.Event) { p.event(p.boards.list[0], e) }

func (p *Progress) event(b *board, e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shell.JSON {
		_ = p.shell.PrintLine(Line{Event: &e}) // who has closed it does not read
		return
	}
	if e.Plan != nil {
		began := b.began
		*b = *newBoard(b.label, e.Plan)
		b.began = began
	}
	e.Text = b.short(&e)
	s := b.apply(e)
	switch {
	case e.Step == run.Whole && e.State == run.Waiting && e.Text != "":
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

// Say prints lines for a person, above those that are drawn over.
func (p *Progress) Say(lines ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(lines...)
}

// say is Say for who holds p.mu.
func (p *Progress) say(lines ...string) {
	var b strings.Builder
	p.wipe(&b)
	width, _ := p.shell.Err.Size()
	for _, line := range lines {
		line = cli.Clean(p.shell.Typed(line))
		indent := len(line) - len(strings.TrimLeft(line, " ")) + len("  ")
		for _, part := range cli.Wrap(line, width, indent) {
			b.WriteString(part + "\n")
		}
	}
	_, _ = io.WriteString(p.shell.Err, b.String()) // a screen that is gone needs no line
}

// End shows the last state and lets it stand.
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

// wipe moves the cursor to the first of the lines that are drawn over, and erases
// from there.
func (p *Progress) wipe(b *strings.Builder) {
	if p.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", p.lines)
	}
	p.lines = 0
}

// Line is one line of what --json prints while a plan is carried out: one of its members.
type Line struct {
	Plan   *deploy.Plan `json:"plan,omitempty"`
	Fits   []Fit        `json:"fits,omitempty"` // with Plan
	Event  *run.Event   `json:"event,omitempty"`
	Result *run.Result  `json:"result,omitempty"`
	// VolumesLeft, with Result, are those that machines which were destroyed leave behind.
	VolumesLeft []bourse.VolumeID `json:"volumes_left,omitempty"`
}
