package sql

import (
	"fmt"
	"io"

	"github.com/bourse-dev/bourse/cli"
)

// newSink returns the display for a watched query.
func newSink(s *cli.Shell, f options) watchSink {
	switch {
	case s.JSON:
		return &jsonLines{shell: s}
	case f.csv:
		return &changePrinter{shell: s, rowPrinter: &csvRows{w: s.Out, tty: s.Out.TTY, watched: true}}
	case s.Out.TTY && !s.Out.Dumb:
		return newScreen(s.Out, s.Now)
	}
	return &changePrinter{shell: s, rowPrinter: &tableRows{out: s.Out, watched: true}}
}

// notices prints the connection's state to standard error.
type notices struct{ shell *cli.Shell }

func (t notices) lost(why string) {
	t.shell.Note("connection lost (" + cli.Clean(why) + "); reconnecting")
}

func (t notices) back(fresh bool) {
	if fresh {
		t.shell.Note("reconnected; all rows are printed again")
		return
	}
	t.shell.Note("reconnected; no changes were missed")
}

// changePrinter prints the rows and changes of a watched query one after the other.
type changePrinter struct {
	rowPrinter
	shell    *cli.Shell
	begun    bool
	complete bool // all initial rows have been received
}

func (p *changePrinter) begin(columns []string) error {
	if p.begun { // the header was already printed, and the columns have not changed
		return nil
	}
	p.begun = true
	return p.rowPrinter.begin(columns)
}

func (p *changePrinter) settled(uint64) error {
	if !p.complete {
		p.complete = true
		return p.end()
	}
	return p.flush()
}

func (p *changePrinter) restart() error  { return p.row(changedRow{kind: kindRestart}) }
func (p *changePrinter) lost(why string) { notices{p.shell}.lost(why) }
func (p *changePrinter) back(fresh bool) { notices{p.shell}.back(fresh) }
func (p *changePrinter) close() error    { return p.flush() }

// jsonLines prints the rows and changes of a watched query as JSON objects, one per line.
type jsonLines struct {
	shell *cli.Shell
	names []string // column names, as JSON
	begun bool     // all initial rows have been received
}

func (j *jsonLines) begin(columns []string) error {
	var err error
	j.names, err = jsonNames(columns)
	return err
}

func (j *jsonLines) row(r changedRow) error {
	object, err := jsonObject(j.names, r.cells)
	if err != nil {
		return err
	}
	change := ""
	if r.change > 0 {
		change = fmt.Sprintf(`"change":%d,`, r.change)
	}
	return j.line(fmt.Sprintf(`{"kind":%q,%s"id":%d,"row":%s}`, r.kind, change, r.id, object))
}

func (j *jsonLines) settled(change uint64) error {
	if j.begun {
		return nil
	}
	j.begun = true
	return j.line(fmt.Sprintf(`{"kind":"end","change":%d}`, change))
}

func (j *jsonLines) restart() error {
	j.begun = false
	return j.line(`{"kind":"restart"}`)
}

func (j *jsonLines) lost(why string) { notices{j.shell}.lost(why) }
func (j *jsonLines) back(fresh bool) { notices{j.shell}.back(fresh) }
func (j *jsonLines) close() error    { return nil }

func (j *jsonLines) line(text string) error {
	_, err := io.WriteString(j.shell.Out, text+"\n")
	return err
}
