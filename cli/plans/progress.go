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

	mu    sync.Mutex
	board *board
	lines int // on the screen, to be drawn over

	end  chan struct{}
	done sync.WaitGroup
}

// Show begins to show a plan; title says what it is of. End ends it.
func Show(s *cli.Shell, title string, p *deploy.Plan) *Progress {
	out := &Progress{
		shell: s, drawn: s.Err.TTY && !s.Err.Dumb && !s.JSON, board: newBoard(title, p), end: make(chan struct{}),
	}
	if out.drawn {
		out.done.Go(out.animate)
	}
	return out
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

// Event shows what has happened.
func (p *Progress) Event(e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.board.apply(e)
	switch {
	case p.shell.JSON:
		_ = p.shell.PrintLine(Line{Event: &e}) // who has closed it does not read
		return
	case s == nil:
		return
	case !p.drawn:
		if line := p.board.plain(s, e); line != "" {
			p.say(line)
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
	for _, line := range lines {
		b.WriteString(cli.Clean(p.shell.Typed(line)) + "\n")
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
	lines := p.board.screen(p.shell.Now(), max(width-1, cli.MinWidth), height, p.shell.Err.Color)
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
