package drivertest

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var execCases = map[string]func(*suite){
	"exec returns exit and outputs": func(s *suite) {
		id := s.running()
		got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Print("to out", "to err")})
		if err != nil || got.Exit.Failed() || string(got.Stdout) != "to out\n" || string(got.Stderr) != "to err\n" {
			s.Errorf("got %+v, %v", got, err)
		}
		got, err = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Exit(7)})
		if err != nil || got.Exit.Code != 7 {
			s.Errorf("got %+v, %v, want code 7", got, err)
		}
		got, err = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Env("COLOR")})
		if err != nil || string(got.Stdout) != "deep blue\n" {
			s.Errorf("got %q, %v, want the task's environment", got.Stdout, err)
		}
		if lines := s.logs(id.Machine, driver.LogQuery{}); len(texts(lines, "stdout")) != 1 {
			s.Errorf("the log contains %v, want only the task's own line", lines)
		}
		_, err = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Missing})
		s.wantCode("a missing command", err, bourse.CodeInvalid)
		_, err = s.d.Exec(s.ctx, id, driver.Exec{})
		s.wantCode("no command", err, bourse.CodeInvalid)
		s.wantProcesses(1)
	},
	"exec has stdin": func(s *suite) {
		id := s.running()
		in := strings.Repeat("a line of input\n", 5000)
		got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Cat, Stdin: strings.NewReader(in)})
		if err != nil || string(got.Stdout) != in {
			s.Errorf("got %d bytes, %v, want the %d bytes from stdin", len(got.Stdout), err, len(in))
		}
		got, err = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Cat})
		if err != nil || len(got.Stdout) != 0 {
			s.Errorf("without stdin: got %q, %v, want no output", got.Stdout, err)
		}
	},
	"exec returns bounded output": func(s *suite) {
		id := s.running()
		got, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Lines(0, 50_000), Limit: 1000})
		if err != nil || got.Exit.Failed() || len(got.Stdout) != 1000 || !bytes.HasPrefix(got.Stdout, []byte("line 0\nline 1\n")) {
			s.Errorf("got %d bytes, exit %+v, %v; want the first 1000 bytes and exit code 0", len(got.Stdout), got.Exit, err)
		}
	},
	"exec is killed with its context": func(s *suite) {
		id := s.running()
		command := s.p.Ignore
		if s.p.Tree != nil {
			command = s.p.Tree
		}
		ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
		defer cancel()
		_, err := s.d.Exec(ctx, id, driver.Exec{Command: command})
		s.wantCode("Exec", err, bourse.CodeTimeout)
		s.awaitProcesses(1)
	},
	"exec after the task has ended": func(s *suite) {
		task := s.task(s.p.Exit(0))
		s.run(task)
		_, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Exit(0)})
		s.wantCode("Exec", err, bourse.CodeFailedPrecondition)
	},
	"exec ends with its task": func(s *suite) {
		id := s.running()
		done := make(chan error, 1)
		go func() {
			_, err := s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Ignore})
			done <- err
		}()
		s.awaitProcesses(2)
		s.stop(id)
		<-done // any result is acceptable, but Exec must return
		s.awaitProcesses(0)
	},
}

// running starts a task and returns its id once it is ready.
func (s *suite) running() driver.TaskID {
	s.Helper()
	task := s.task(s.p.Run)
	task.Env = append(task.Env, "COLOR=deep blue")
	s.start(task)
	s.awaitReady(task.ID.Machine)
	return task.ID
}

// awaitProcesses waits until the number of processes of all tasks on the host is want. It polls,
// because there are no notifications about new processes.
func (s *suite) awaitProcesses(want int) {
	s.Helper()
	l, ok := s.host.(Lister)
	if !ok {
		return
	}
	for l.Processes(s.T) != want {
		select {
		case <-time.After(time.Millisecond):
		case <-s.ctx.Done():
			s.Fatalf("%d task processes are running, want %d", l.Processes(s.T), want)
		}
	}
}
