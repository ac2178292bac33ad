package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bourse-dev/bourse"
)

// Stream is one of the command's three standard streams.
type Stream struct {
	io.ReadWriter
	TTY   bool // a person sits at the other end
	Dumb  bool // of a terminal: its cursor cannot be moved
	Width int  // of a terminal, in characters; 0 when it is none
	Color bool // colours are wanted there

	Look func() (width, height int) // how large it is now; nil: of fixed width, and of any height
	Raw  func() (func(), error)     // takes it as it is, key by key, until the function that it returns is called; nil: it is no terminal
}

// NewStream looks at what a file is. A terminal that says that it is dumb gets
// text alone, and so does one whose user wants no colours (no-color.org).
func NewStream(f *os.File, getenv func(string) string) Stream {
	look := func() (int, int) {
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0
		}
		return int(size.Col), int(size.Row)
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Stream{ReadWriter: f}
	}
	raw := func() (func(), error) {
		was, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return nil, err
		}
		return func() { _ = term.Restore(int(f.Fd()), was) }, nil // what else could be tried
	}
	dumb := getenv("TERM") == "dumb"
	return Stream{
		ReadWriter: f, TTY: true, Dumb: dumb, Color: !dumb && getenv("NO_COLOR") == "", Width: int(size.Col), Look: look, Raw: raw,
	}
}

// Size returns how large the terminal is now, in characters. 0 means that there
// is no bound.
func (s Stream) Size() (width, height int) {
	if s.Look == nil {
		return s.Width, 0
	}
	return s.Look()
}

// Tone is a colour for words that a person looks for. It only repeats what the
// words say.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good       // as it should be
	Bad        // failed, or out of reach
	Busy       // on its way from one to another
	Quiet      // over, or of little interest
)

var tones = map[Tone]string{Good: "32", Bad: "31", Busy: "33", Quiet: "2"}

func (t Tone) paint(text string) string {
	code, ok := tones[t]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	spinnerDelay = 80 * time.Millisecond // what ends sooner needs no spinner
	spinnerStep  = 80 * time.Millisecond
	spinnerRoom  = 4 // of what is no text, and the cursor
)

var spinnerFrames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Spin shows on a terminal that something is in progress, until the function
// that it returns is called; that one wipes the line and may be called twice.
// On anything but a terminal whose cursor moves nothing is shown.
func Spin(s Stream, what string) (stop func()) {
	if !s.TTY || s.Dumb {
		return func() {}
	}
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { spinUntil(end, s, what) })
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}

func spinUntil(end <-chan struct{}, w Stream, what string) {
	select {
	case <-end:
		return
	case <-time.After(spinnerDelay):
	}
	if width, _ := w.Size(); width > 0 {
		what = Cut(what, max(width-spinnerRoom, MinWidth)) // or each step would scroll
	}
	tick := time.NewTicker(spinnerStep)
	defer tick.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(w, "\r%c %s ", spinnerFrames[i%len(spinnerFrames)], what)
		select {
		case <-end:
			fmt.Fprint(w, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}

// Bars draws a bar for each of several things in progress, one below the
// other, over what it drew before. On anything but a terminal only what is
// finished is printed, a line each.
type Bars struct {
	To    Stream
	bars  []Bar // in the order of their coming
	drawn int   // lines on the screen
}

// Bar is how far one thing has come.
type Bar struct {
	Name   string
	Status string
	Done   int64
	Total  int64 // 0: not known
	Over   bool
}

const (
	barCells = 24
	fullCell = "█"
	restCell = "░"
)

// Set changes a bar, or adds it, and draws.
func (p *Bars) Set(b Bar) {
	i := slices.IndexFunc(p.bars, func(x Bar) bool { return x.Name == b.Name })
	switch {
	case i < 0:
		p.bars = append(p.bars, b)
	case p.bars[i] == b:
		return
	default:
		p.bars[i] = b
	}
	if !p.To.TTY || p.To.Dumb {
		if b.Over {
			fmt.Fprintf(p.To, "%s  %s\n", Clean(b.Name), Clean(b.Status))
		}
		return
	}
	p.draw()
}

func (p *Bars) draw() {
	width := 0
	for _, b := range p.bars {
		width = max(width, len(Clean(b.Name)))
	}
	var out strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", p.drawn)
	}
	for _, b := range p.bars {
		line := Cut(b.line(width), max(p.To.Width-1, MinWidth))
		out.WriteString("\r\x1b[K" + line + "\n")
	}
	p.drawn = len(p.bars)
	_, _ = io.WriteString(p.To, out.String()) // a screen that is gone needs no bar
}

// line shows a bar: name, cells, part of the whole, status.
func (b *Bar) line(width int) string {
	name := Pad(Clean(b.Name), width, false)
	if b.Over || b.Total <= 0 {
		return name + ColumnGap + Clean(b.Status)
	}
	part := min(max(float64(b.Done)/float64(b.Total), 0), 1)
	full := int(part * barCells)
	return fmt.Sprintf("%s  %s%s %3.0f%%  %s of %s  %s", name, strings.Repeat(fullCell, full), strings.Repeat(restCell, barCells-full),
		part*100, Bytes(b.Done), Bytes(b.Total), Clean(b.Status))
}

// PullBar shows an image's pull.
func PullBar(name string, i *bourse.Image) Bar {
	if i.Pull == nil {
		return Bar{Name: name, Status: "here, " + Bytes(i.Bytes), Over: true}
	}
	return Bar{Name: name, Status: i.Pull.Status, Done: i.Pull.Bytes, Total: i.Pull.Total}
}

// Bounded returns the first of a list and, where there are others, how many: a line more.
func Bounded(list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// Wrap breaks a line between words so that it fits on so many columns; what follows the
// first is indented by so many blanks. A word that is too long is broken itself. Where
// there are no columns (0) nothing is broken.
func Wrap(line string, width, indent int) []string {
	var out []string
	width = max(width, 0)
	indent = min(indent, width/2)
	for width > 0 && len([]rune(line)) > width {
		runes := []rune(line)
		at := strings.LastIndexByte(string(runes[:width+1]), ' ')
		if at <= indent {
			at = len(string(runes[:width]))
		}
		out = append(out, strings.TrimRight(line[:at], " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}

// CanAsk reports whether standard input and standard error are a terminal.
func (s *Shell) CanAsk() bool { return s.In.TTY && s.Err.TTY }

// BindYes adds the flag --yes to a destructive command.
func BindYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "skip the confirmation")
}

// YesFlag returns " --yes" if the flag was given, for a hint that repeats the command:
// without it, the suggested command would fail with another hint.
func YesFlag(yes bool) string {
	if yes {
		return " --yes"
	}
	return ""
}

// Confirm asks a person to confirm a destructive command, unless yes is set. Without a
// terminal it returns CodeInvalid, so that a script never destroys anything by accident.
func (s *Shell) Confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.CanAsk() {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%s? Standard input is not a terminal, so nobody can confirm it", question), "--yes")
	}
	fmt.Fprintf(s.Err, "%s? [y/N] ", Clean(question))
	line, err := s.ReadInput(ctx, func(r io.Reader) ([]byte, error) { return bufio.NewReader(r).ReadBytes('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(string(line))) {
	case "y", "yes":
		return nil
	}
	return bourse.Errorf(bourse.CodeCanceled, "canceled: nothing was changed")
}
