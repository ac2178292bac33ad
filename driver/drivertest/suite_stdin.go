package drivertest

import (
	"bytes"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var stdinCases = map[string]func(*suite){
	"stdin arrives unchanged and ends": func(s *suite) {
		for _, in := range []string{
			"one line\n", "a\n\nb\n", strings.Repeat("x", 40<<10) + "\n", strings.Repeat("a line of input\n", driver.MaxStdin/16),
			"no newline at the end", "\n", "\x00\x01\xff\r", strings.Repeat("y", 40<<10), strings.Repeat("z", 16<<10), // including long unterminated lines
		} {
			if got := s.fed(in); got != in {
				s.Errorf("got %d of %d bytes: %.40q, want %.40q", len(got), len(in), got, in)
			}
		}
	},
	"a program that does not read its stdin": func(s *suite) {
		task := s.task(s.p.Exit(5))
		task.Stdin = bytes.Repeat([]byte("x"), driver.MaxStdin)
		s.start(task)
		if exit := s.wait(task.ID); exit.Code != 5 {
			s.Errorf("got exit %+v, want code 5", exit)
		}
	},
	"stdin survives the daemon's death": func(s *suite) {
		task := s.task(s.p.LateCat)
		in := strings.Repeat("before\n", driver.MaxStdin/7)
		task.Stdin = []byte(in)
		s.start(task)
		s.reopen()
		s.wait(task.ID)
		if again := s.start(task); again.Exit == nil {
			s.Errorf("repeated Start returned %+v, want the first run's exit", again)
		}
		if got := s.written(task.ID.Machine); got != in {
			s.Errorf("got %d of %d bytes", len(got), len(in))
		}
	},
	"too much stdin": func(s *suite) {
		task := s.task(s.p.Cat)
		task.Stdin = make([]byte, driver.MaxStdin+1)
		_, err := s.d.Start(s.ctx, task)
		s.wantCode("too much stdin", err, bourse.CodeInvalid)
	},
}

// fed runs a program that copies stdin to stdout, with input as its stdin, and returns its
// output.
func (s *suite) fed(input string) string {
	s.Helper()
	task := s.task(s.p.Cat)
	task.Stdin = []byte(input)
	s.start(task)
	if exit := s.wait(task.ID); exit.Failed() {
		s.Errorf("exit %+v", exit)
	}
	return s.written(task.ID.Machine)
}

// written returns a machine's output on stdout, including line breaks.
func (s *suite) written(machine bourse.MachineID) string {
	s.Helper()
	var out strings.Builder
	for _, l := range s.logs(machine, driver.LogQuery{}) {
		out.WriteString(l.Text)
		if !l.Partial {
			out.WriteByte('\n')
		}
	}
	return out.String()
}
