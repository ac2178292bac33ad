package drivertest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

var streamCases = map[string]func(*suite){
	"exec streams both outputs": func(s *suite) {
		id := s.running()
		var out, err bytes.Buffer
		got, failed := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Print("to out", "to err"), Stdout: &out, Stderr: &err})
		if failed != nil || got.Exit.Failed() || out.String() != "to out\n" || err.String() != "to err\n" {
			s.Errorf("got %+v, %v, stdout %q and stderr %q; want exit code 0 and one line in each stream", got, failed, &out, &err)
		}
		if len(got.Stdout)+len(got.Stderr) > 0 {
			s.Errorf("streamed output was also returned: %q, %q", got.Stdout, got.Stderr)
		}
		out.Reset()
		got, failed = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Print("to out", "to err"), Stdout: &out})
		if failed != nil || out.String() != "to out\n" || len(got.Stdout)+len(got.Stderr) > 0 {
			s.Errorf("with only Stdout set: got %+v, %v and stdout %q; want stdout in the stream and no output in the result", got, failed, &out)
		}
	},
	"exec streams output immediately": func(s *suite) {
		s.need("a conversation", s.p.Converse != nil)
		id := s.running()
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan error, 1)
		go func() {
			got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Converse, Stdin: inR, Stdout: outW})
			if err == nil && got.Exit.Failed() {
				err = errors.New("the command failed")
			}
			_ = outW.Close()
			done <- err
		}()
		lines := bufio.NewReader(outR)
		for _, want := range []string{"one\n", "two\n", "three\n"} {
			if _, err := io.WriteString(inW, want); err != nil {
				s.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != want {
				s.Fatalf("got %q, %v, want %q before the next line is written", got, err, want)
			}
		}
		_ = inW.Close()
		if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
			s.Errorf("after the last line: got %q, %v, want no output", rest, err)
		}
		if err := <-done; err != nil {
			s.Errorf("Exec: %v", err)
		}
	},
	"exec streams everything to a slow reader": func(s *suite) {
		id := s.running()
		const lines = 1000
		out := &slow{pause: time.Second}
		got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Lines(0, lines), Stdout: out})
		if err != nil || got.Exit.Failed() {
			s.Errorf("got %+v, %v, want success", got, err)
		}
		s.wantLines(strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), 0, lines)
	},
	"exec continues when its reader has disconnected": func(s *suite) {
		id := s.running()
		got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Lines(0, 50_000), Stdout: leaver{}})
		if err != nil || got.Exit.Failed() {
			s.Errorf("got %+v, %v, want success", got, err)
		}
	},
}

// slow is a writer whose first Write takes time.
type slow struct {
	bytes.Buffer
	pause time.Duration
}

func (w *slow) Write(b []byte) (int, error) {
	time.Sleep(w.pause)
	w.pause = 0
	return w.Buffer.Write(b)
}

// leaver is a writer that always fails.
type leaver struct{}

func (leaver) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
