package sql

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/cli"
)

const (
	screenInterval = 100 * time.Millisecond // minimum time between two updates
	markDuration   = 3 * time.Second        // how long a changed row is marked
)

// screen shows the rows of a watched query on a terminal. A goroutine redraws it when rows
// have changed. mu guards the fields below it.
type screen struct {
	out  cli.Stream
	now  func() time.Time
	stop chan struct{}
	done sync.WaitGroup

	mu         sync.Mutex
	columns    []string
	rows       []screenRow
	changes    uint64    // number of changes
	last       time.Time // time of the last change
	lostReason string    // reason for the loss of the connection; "" while connected
	whole      bool      // all initial rows have been received
	dirty      bool
	drawn      int // number of lines drawn on the terminal
	err        error
}

type screenRow struct {
	id      int64
	cells   []any
	mark    string    // "+" for a new row, "~" for a changed one
	markEnd time.Time // time at which the mark is removed
}

func newScreen(out cli.Stream, now func() time.Time) *screen {
	s := &screen{out: out, now: now, stop: make(chan struct{})}
	s.done.Go(s.run)
	return s
}

func (s *screen) run() {
	tick := time.NewTicker(screenInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.mu.Lock()
			s.draw()
			s.mu.Unlock()
		}
	}
}

func (s *screen) begin(columns []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.columns, s.rows, s.whole = columns, nil, false
	return s.err
}

func (s *screen) row(r changedRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.rows, func(x screenRow) bool { return x.id == r.id })
	row := screenRow{id: r.id, cells: r.cells}
	if r.kind != kindRow {
		s.changes++
		s.last = s.now()
		row.markEnd = s.last.Add(markDuration)
	}
	switch {
	case r.kind == "delete" && at >= 0:
		s.rows = slices.Delete(s.rows, at, at+1)
	case r.kind == "delete":
	case at >= 0:
		row.mark = "~"
		s.rows[at] = row
	default:
		if r.kind != kindRow {
			row.mark = "+"
		}
		s.rows = append(s.rows, row)
	}
	return s.err
}

func (s *screen) settled(uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole, s.dirty = true, true
	return s.err
}

// restart does nothing, so that the old rows stay on the screen until the new ones arrive.
func (s *screen) restart() error { return nil }

func (s *screen) lost(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostReason, s.dirty = why, true
}

func (s *screen) back(bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostReason, s.dirty = "", true
}

// close draws the final state and leaves the cursor below it.
func (s *screen) close() error {
	close(s.stop)
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw()
	return s.err
}

// draw updates the terminal with a single write, to avoid flickering. The caller must hold
// mu.
func (s *screen) draw() {
	for i := range s.rows {
		if r := &s.rows[i]; r.mark != "" && !s.now().Before(r.markEnd) {
			r.mark, s.dirty = "", true
		}
	}
	if !s.dirty || !s.whole && s.lostReason == "" || s.err != nil {
		return
	}
	s.dirty = false
	lines := s.lines()
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = len(lines)
	_, s.err = io.WriteString(s.out, b.String())
}

// lines renders the table and the status. No line is wider than the terminal.
func (s *screen) lines() []string {
	width, height := s.out.Size()
	shown := len(s.rows)
	if height > 0 {
		shown = min(shown, max(1, height-4)) // 4 lines remain for the header, the number of omitted rows, the status and the cursor
	}
	g := newGrid(append([]string{" "}, s.columns...)) // the first column contains the marks
	texts := make([][]string, shown)
	for i, r := range s.rows[:shown] {
		texts[i] = []string{r.mark}
		numbers := []bool{false}
		for _, v := range r.cells {
			texts[i] = append(texts[i], shownCell(v, width))
			numbers = append(numbers, v == nil || isNumber(v))
		}
		g.measure(texts[i], numbers)
	}
	fitted, _ := g.fit(width) // lines that are still too wide are cut below
	out := []string{fitted.line(g.columns)}
	for _, row := range texts {
		out = append(out, fitted.line(row))
	}
	if left := len(s.rows) - shown; left > 0 {
		out = append(out, fmt.Sprintf("  … and %d more", left))
	}
	out = append(out, s.status())
	for i := range out {
		out[i] = strings.TrimRight(out[i], "\n")
		if width > 0 {
			out[i] = cli.Cut(out[i], width-1)
		}
	}
	return out
}

// status returns the status line, which is shown below the table.
func (s *screen) status() string {
	text := "-- " + cli.Count(len(s.rows), "row")
	if s.lostReason != "" {
		return text + "; connection lost, reconnecting: " + cli.Clean(s.lostReason)
	}
	if s.changes > 0 {
		text += fmt.Sprintf(", %s, the last at %s", cli.Count(int64(s.changes), "change"), s.last.Local().Format(time.TimeOnly))
	}
	return text + "; press Ctrl-C to stop"
}
