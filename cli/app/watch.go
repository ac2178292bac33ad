package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

const statusStep = time.Second // refresh interval of --watch

// watch prints an app's status each time it changes. On a terminal the new status replaces
// the previous one; otherwise it is appended. With --json, each status is one line.
type watch struct {
	shell *cli.Shell
	look  func() (Status, error)
	wait  func(context.Context) error // waits until the next update is due

	shown []byte // last output: a rendered frame, or JSON
	lines int    // height of the last frame, in lines
	size  [2]int // the terminal's size when the last frame was drawn
}

func (w *watch) run(ctx context.Context) error {
	drawn := w.shell.Out.TTY && !w.shell.Out.Dumb && !w.shell.JSON
	var last Status
	for {
		end := func() {}
		if w.shown == nil {
			end = cli.Spin(w.shell.Err, "asking the workers")
		}
		st, err := w.look()
		end()
		if err != nil && (w.shown == nil || !cli.Temporary(err)) {
			return err
		}
		trouble := ""
		if err == nil {
			last = st
		} else {
			trouble = bourse.MessageOf(err)
		}
		if drawn {
			err = w.redraw(w.frame(&last, trouble))
		} else {
			err = w.print(&last)
		}
		if err != nil {
			return err
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(statusStep):
		return nil
	}
}

// print prints the status below the previous one if it has changed.
func (w *watch) print(st *Status) error {
	raw, _ := json.Marshal(st) // a Status can always be marshaled
	if bytes.Equal(raw, w.shown) {
		return nil
	}
	again := w.shown != nil
	w.shown = raw
	if w.shell.JSON {
		_, err := w.shell.Out.Write(append(raw, '\n'))
		return err
	}
	if again {
		if _, err := io.WriteString(w.shell.Out, "\n"); err != nil {
			return err
		}
	}
	return st.print(w.shell.Out, w.shell)
}

// redraw replaces the previous frame on the terminal.
func (w *watch) redraw(frame []byte) error {
	width, height := w.shell.Out.Size()
	size, before := [2]int{width, height}, ""
	switch {
	case w.lines > 0 && size != w.size: // after a resize, the terminal has wrapped lines differently, so the frame's position is unknown
		before = "\x1b[H\x1b[2J"
	case w.lines > 0:
		before = fmt.Sprintf("\x1b[%dA\r\x1b[J", w.lines)
	}
	w.size = size
	w.shown, w.lines = frame, bytes.Count(frame, []byte("\n"))
	_, err := io.WriteString(w.shell.Out, before+string(frame))
	return err
}

// frame renders the status and the current time to fit the terminal. trouble describes why
// the latest update failed; it is "" if the update succeeded.
func (w *watch) frame(st *Status, trouble string) []byte {
	width, height := w.shell.Out.Size()
	line := w.shell.Now().Local().Format(time.TimeOnly) + "  press Ctrl-C to stop"
	if trouble != "" {
		line = w.shell.Now().Local().Format(time.TimeOnly) + "  showing the last status: " + trouble
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, cli.Clean(line))
	_ = st.print(cli.Stream{ReadWriter: &b, Width: width}, w.shell) // writes to a buffer cannot fail
	var out bytes.Buffer
	n := 0
	for line := range bytes.Lines(b.Bytes()) {
		if n++; height > 0 && n > height-2 {
			out.WriteString("(more lines do not fit on this screen)\n")
			break
		}
		if width > 0 {
			line = []byte(cli.Cut(string(bytes.TrimRight(line, "\n")), width) + "\n")
		}
		out.Write(line)
	}
	return out.Bytes()
}
