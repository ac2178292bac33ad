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

// Stream is one of a command's three standard streams.
type Stream struct {
	io.ReadWriter
	TTY   bool // the stream is connected to a terminal
	Dumb  bool // the terminal cannot move its cursor
	Width int  // width of the terminal in characters; 0 without a terminal
	Color bool // print colors

	CurrentSize func() (width, height int) // returns the current size; nil means a fixed width and unlimited height
	Raw         func() (func(), error)     // switches to raw mode and returns a function that restores the mode; nil without a terminal
}

// newStream returns a Stream for f. Colors are disabled on a dumb terminal, or if NO_COLOR is set
// (no-color.org).
func newStream(f *os.File, getenv func(string) string) Stream {
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
		return func() { _ = term.Restore(int(f.Fd()), was) }, nil // nothing more can be done if this fails
	}
	dumb := getenv("TERM") == "dumb"
	return Stream{
		ReadWriter: f, TTY: true, Dumb: dumb, Color: !dumb && getenv("NO_COLOR") == "", Width: int(size.Col), CurrentSize: look, Raw: raw,
	}
}

// Size returns the terminal's current width and height in characters. 0 means unlimited.
func (s Stream) Size() (width, height int) {
	if s.CurrentSize == nil {
		return s.Width, 0
	}
	return s.CurrentSize()
}

// Tone is a color that highlights a word. It never conveys information that the word itself
// does not contain.
type Tone int

// The tones.
const (
	Plain        Tone = iota
	Good              // healthy or successful
	Bad               // failed or unreachable
	InTransition      // in transition
	Muted             // finished or unimportant
)

var tones = map[Tone]string{Good: "32", Bad: "31", InTransition: "33", Muted: "2"}

func (t Tone) paint(text string) string {
	code, ok := tones[t]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	spinnerDelay = 80 * time.Millisecond // operations that take less time show no spinner
	spinnerStep  = 80 * time.Millisecond
	spinnerRoom  = 4 // columns for the spinner's frame, the blanks and the cursor
)

var spinnerFrames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Spin shows a spinner on a terminal until stop is called. stop clears the line and may be called
// more than once. Spin shows nothing if s is not a terminal or is a dumb one.
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
		what = Cut(what, max(width-spinnerRoom, MinWidth)) // a wrapped line would scroll the terminal at each step
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

// Bars draws progress bars, one per line, and updates them in place. Without a terminal, it draws
// no bars, and prints a line when an item is finished.
type Bars struct {
	Out   Stream
	bars  []Bar // bars in the order in which they were first set
	drawn int   // number of lines on the terminal
}

// Bar is the progress of one item.
type Bar struct {
	Name   string
	Status string
	Done   int64
	Total  int64 // 0 if unknown
	Over   bool
}

const (
	barCells  = 24
	fullCell  = "█"
	emptyCell = "░"
)

// Set adds or updates a bar and redraws all bars.
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
	if !p.Out.TTY || p.Out.Dumb {
		if b.Over {
			fmt.Fprintf(p.Out, "%s  %s\n", Clean(b.Name), Clean(b.Status))
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
		line := Cut(b.line(width), max(p.Out.Width-1, MinWidth))
		out.WriteString("\r\x1b[K" + line + "\n")
	}
	p.drawn = len(p.bars)
	_, _ = io.WriteString(p.Out, out.String()) // if the terminal is closed, nobody needs the bars
}

// line formats a bar as name, cells, percentage and status.
func (b *Bar) line(width int) string {
	name := Pad(Clean(b.Name), width, false)
	if b.Over || b.Total <= 0 {
		return name + ColumnGap + Clean(b.Status)
	}
	part := min(max(float64(b.Done)/float64(b.Total), 0), 1)
	full := int(part * barCells)
	return fmt.Sprintf("%s  %s%s %3.0f%%  %s of %s  %s", name, strings.Repeat(fullCell, full), strings.Repeat(emptyCell, barCells-full),
		part*100, Bytes(b.Done), Bytes(b.Total), Clean(b.Status))
}

// PullBar returns a bar that shows the progress of an image pull.
func PullBar(name string, i *bourse.Image) Bar {
	if i.Pull == nil {
		return Bar{Name: name, Status: "present, " + Bytes(i.Bytes), Over: true}
	}
	return Bar{Name: name, Status: i.Pull.Status, Done: i.Pull.Bytes, Total: i.Pull.Total}
}

// Bounded shortens list to its first limit elements, followed by an "and N more" line if it omits
// any.
func Bounded(list []string, limit int) []string {
	if len(list) <= limit {
		return list
	}
	return append(slices.Clone(list[:limit]), fmt.Sprintf("and %d more", len(list)-limit))
}

// Wrap breaks a line between words into parts of at most width characters. All parts except
// the first are indented by indent blanks. A word that is too long is broken. If width is
// 0, the line is not broken.
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

// Interactive reports whether standard input and standard error are terminals.
func (s *Shell) Interactive() bool { return s.In.TTY && s.Err.TTY }

// BindYes adds the flag --yes to a destructive command.
func BindYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "skip the confirmation")
}

// YesFlag returns " --yes" if yes is set. It is for hints that suggest a corrected command: without
// --yes, the suggested command would ask for confirmation or fail.
func YesFlag(yes bool) string {
	if yes {
		return " --yes"
	}
	return ""
}

// Confirm asks the user to confirm a destructive command, unless yes is set. Without a terminal,
// it returns CodeInvalid, so that a script never destroys anything by accident.
func (s *Shell) Confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.Interactive() {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%s? Cannot ask for confirmation without a terminal", question), "--yes")
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
