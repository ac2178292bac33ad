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

const statusStep = time.Second // between two looks of --watch

// watch shows how an app is again whenever that has changed: in its place on a
// terminal, below on anything else, as one line of JSON each with --json.
type watch struct {
	shell *cli.Shell
	look  func() (Status, error)
	wait  func(context.Context) error // until the next look

	shown []byte // last: the frame, or the JSON of what is printed
	lines int    // of the frame, that are drawn over
	size  [2]int // of the terminal then
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
		if err != nil && (w.shown == nil || !cli.Passing(err)) {
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

// print shows how the app is where nothing is drawn over, if that has changed.
func (w *watch) print(st *Status) error {
	raw, _ := json.Marshal(st) // it has no part that cannot be encoded
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

// redraw shows a frame in the place of the one before.
func (w *watch) redraw(frame []byte) error {
	width, height := w.shell.Out.Size()
	size, before := [2]int{width, height}, ""
	switch {
	case w.lines > 0 && size != w.size: // a terminal breaks lines again: where the frame begins is not known
		before = "\x1b[H\x1b[2J"
	case w.lines > 0:
		before = fmt.Sprintf("\x1b[%dA\r\x1b[J", w.lines)
	}
	w.size = size
	w.shown, w.lines = frame, bytes.Count(frame, []byte("\n"))
	_, err := io.WriteString(w.shell.Out, before+string(frame))
	return err
}

// frame is the screen with how an app is, and when that was: lines that fit on the terminal as
// large as it is now. Trouble is why the newest look failed.
func (w *watch) frame(st *Status, trouble string) []byte {
	width, height := w.shell.Out.Size()
	line := w.shell.Now().Local().Format(time.TimeOnly) + "  Ctrl-C ends this"
	if trouble != "" {
		line = w.shell.Now().Local().Format(time.TimeOnly) + "  no answer, this is how it was: " + trouble
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, cli.Clean(line))
	_ = st.print(cli.Stream{ReadWriter: &b, Width: width}, w.shell) // into memory
	var out bytes.Buffer
	n := 0
	for line := range bytes.Lines(b.Bytes()) {
		if n++; height > 0 && n > height-2 {
			out.WriteString("more does not fit on this screen\n")
			break
		}
		if width > 0 {
			line = []byte(cli.Cut(string(bytes.TrimRight(line, "\n")), width) + "\n")
		}
		out.Write(line)
	}
	return out.Bytes()
}
