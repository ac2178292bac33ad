package drivertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var terminalCases = map[string]func(*suite){
	"a command has its own terminal": func(s *suite) {
		s.need("a terminal", s.p.Terminal != nil)
		id := s.running()
		for term, want := range map[string]string{"": "xterm", "vt100": "vt100"} {
			var out bytes.Buffer
			got, err := s.d.Exec(s.ctx, id, driver.Exec{
				Command: s.p.Terminal, Stdout: &out, Terminal: &driver.Terminal{Size: driver.Size{Rows: 24, Cols: 80}, Term: term},
			})
			if err != nil || got.Exit.Failed() || strings.TrimSpace(out.String()) != want {
				s.Errorf("got %+v, %v and output %q, want %q", got, err, &out, want)
			}
		}
		if got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Terminal}); err != nil || !got.Exit.Failed() {
			s.Errorf("without a terminal: got %+v, %v, want a failure", got, err)
		}
		_, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Terminal, Terminal: &driver.Terminal{}})
		s.wantCode("a terminal without stdout", err, bourse.CodeInvalid)
		s.awaitProcesses(1)
	},
	"a terminal's size and exit": func(s *suite) {
		s.need("the size of a terminal", s.p.Size != nil)
		t := s.terminal(s.ctx, s.p.Size, driver.Size{Rows: 11, Cols: 22})
		t.await(s, "size 11 22")
		for _, size := range []driver.Size{{Rows: 33, Cols: 44}, {Rows: 500, Cols: 1000}} {
			t.resize <- size
			t.await(s, fmt.Sprintf("size %d %d", size.Rows, size.Cols))
		}
		if _, err := io.WriteString(t.keyboard, "enough\n"); err != nil {
			s.Fatal(err)
		}
		if got := <-t.done; got.err != nil || got.Exit.Code != 7 {
			s.Errorf("got %+v, want code 7", got)
		}
	},
	"the end of stdin ends a terminal's input": func(s *suite) {
		s.need("a terminal", s.p.Terminal != nil)
		id := s.running()
		for _, in := range []string{"", "a line\n", "half a line"} {
			var out bytes.Buffer
			got, err := s.d.Exec(s.ctx, id, driver.Exec{
				Command: s.p.Cat, Stdin: strings.NewReader(in), Stdout: &out, Terminal: &driver.Terminal{Size: driver.Size{Rows: 24, Cols: 80}},
			})
			if err != nil || got.Exit.Failed() || strings.Count(out.String(), strings.TrimSpace(in)) < 1 {
				s.Errorf("after input %q: got %+v, %v and output %q; want success and the input in the output", in, got, err, &out)
			}
		}
	},
	"a terminal is hung up when its context ends": func(s *suite) {
		s.need("a terminal", s.p.Terminal != nil)
		for _, command := range [][]string{s.p.Run, s.p.Ignore} {
			ctx, cancel := context.WithCancel(s.ctx)
			t := s.terminal(ctx, command, driver.Size{Rows: 24, Cols: 80})
			t.await(s, "ready")
			cancel()
			if got := <-t.done; bourse.CodeOf(got.err) != bourse.CodeCanceled {
				s.Errorf("got %+v, want canceled", got)
			}
			s.awaitProcesses(1)
			s.stop(t.id)
		}
	},
}

// terminal is a command that runs in a terminal, with the user's side of that terminal.
type terminal struct {
	id       driver.TaskID
	keyboard io.Writer
	screen   chan string // the lines of output
	resize   chan driver.Size
	done     chan terminalResult
}

type terminalResult struct {
	driver.ExecResult
	err error
}

// terminal starts a new task, and executes a command with a terminal in it.
func (s *suite) terminal(ctx context.Context, command []string, size driver.Size) *terminal {
	s.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	t := &terminal{
		id: s.running(), keyboard: inW, screen: make(chan string, 1000), // larger than the number of lines in any test case
		resize: make(chan driver.Size), done: make(chan terminalResult, 1),
	}
	go func() {
		got, err := s.d.Exec(ctx, t.id, driver.Exec{
			Command: command, Stdin: inR, Stdout: outW, Terminal: &driver.Terminal{Size: size, Resize: t.resize},
		})
		_, _ = outW.Close(), inR.Close()
		t.done <- terminalResult{got, err}
	}()
	go func() {
		defer close(t.screen)
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			t.screen <- strings.TrimSuffix(lines.Text(), "\r")
		}
	}()
	return t
}

// await waits until the command has printed the line want.
func (t *terminal) await(s *suite, want string) {
	s.Helper()
	timer := time.NewTimer(s.h.Limit)
	defer timer.Stop()
	var seen []string
	for {
		select {
		case line, ok := <-t.screen:
			if line == want {
				return
			}
			if seen = append(seen, line); !ok {
				s.Fatalf("the command ended after printing %q, want %q", seen, want)
			}
		case <-timer.C:
			s.Fatalf("timed out, the command printed %q, want %q", seen, want)
		}
	}
}
