package container

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// TestTerminals runs a task with a terminal, and an exec with a terminal whose size changes.
func TestTerminals(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	o := order(image, sh("test -t 1 && echo terminal $TERM; echo to err >&2;"+runScript)...)
	o.TTY = true
	if _, err := d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	d, _ = h.recovered(t) // the next driver must know that the output is one stream
	sizes := make(chan driver.Size, 1)
	in, typed := io.Pipe()
	var out lockedBuffer
	var wg sync.WaitGroup
	var got driver.ExecResult
	var err error
	wg.Go(func() {
		got, err = d.Exec(t.Context(), o.ID, driver.Exec{
			Command: sh("test -t 0 && echo $TERM; stty size; while read x; do stty size; done; exit 3"), Stdin: in, Stdout: &out,
			Terminal: &driver.Terminal{Size: driver.Size{Rows: 33, Cols: 77}, Resize: sizes, Term: "vt100"},
		})
	})
	eventually(t, "the first size", func() bool { return strings.Contains(out.String(), "33 77") })
	sizes <- driver.Size{Rows: 44, Cols: 88}
	eventually(t, "the new size", func() bool {
		if _, err := typed.Write([]byte("again\n")); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out.String(), "44 88")
	})
	_ = typed.Close() // ends the command's input
	wg.Wait()
	if err != nil || got.Exit.Code != 3 || !strings.Contains(out.String(), "vt100") || !strings.Contains(out.String(), "44 88") {
		t.Errorf("got exit %+v, %v, output %q", got.Exit, err, out.String())
	}
	if err := d.Stop(t.Context(), o.ID, "SIGTERM", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, d, o.ID.Machine); !slices.Equal(got[:2], []string{"terminal xterm\r", "to err\r"}) && !slices.Equal(got[:2], []string{"terminal xterm", "to err"}) {
		t.Errorf("log: got %q, want both outputs", got)
	}
}

// lockedBuffer is a buffer that may be read while another goroutine writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestExecStreams checks that Exec streams both outputs while the command runs, that it returns
// when its context is canceled, and that the next daemon kills the commands of a dead daemon.
func TestExecStreams(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	o := order(image, sh(runScript)...)
	if _, err := d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var out, errs lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := d.Exec(ctx, o.ID, driver.Exec{Command: sh("echo out; echo err >&2; sleep 1000"), Stdout: &out, Stderr: &errs})
		done <- err
	}()
	eventually(t, "both outputs", func() bool { return out.String() == "out\n" && errs.String() == "err\n" })
	cancel()
	if err := <-done; bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("Exec returned %v, want canceled", err)
	}
	// The next daemon kills the commands of a daemon that died.
	go func() {
		_, err := d.Exec(t.Context(), o.ID, driver.Exec{Command: sh("sleep 1000 & exec sleep 1000")})
		done <- err
	}()
	eventually(t, "the command runs", func() bool { return h.Processes(t) == 3 })
	h.recovered(t)
	if err := <-done; bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("Exec returned %v, want unavailable", err)
	}
	eventually(t, "only the task remains", func() bool { return h.Processes(t) == 1 })
}
