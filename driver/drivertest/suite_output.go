package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var outputCases = map[string]func(*suite){
	"both streams": func(s *suite) {
		task := s.task(s.p.Print("to out", "to err"))
		before := time.Now().Add(-time.Second)
		s.run(task)
		lines := s.logs(task.ID.Machine, driver.LogQuery{})
		for stream, want := range map[string]string{"stdout": "to out", "stderr": "to err"} {
			if got := texts(lines, stream); len(got) != 1 || got[0] != want {
				s.Errorf("%s: got %q, want %q", stream, got, want)
			}
		}
		for _, l := range lines {
			if l.At.Before(before) || l.At.After(time.Now().Add(time.Second)) {
				s.Errorf("a line has the time %s, want the current time", l.At)
			}
		}
	},
	"the log is complete when Wait returns": func(s *suite) {
		const lines = 100_000
		task := s.task(s.p.Lines(0, lines))
		s.run(task)
		s.wantLines(texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"), 0, lines)
	},
	"no line is lost when the daemon dies": func(s *suite) {
		const lines = 300
		task := s.task(s.p.Slow(lines, time.Millisecond))
		s.start(task)
		deaths := 0
		for ; deaths < 5 && s.writesOn(task.ID); deaths++ {
			if got := s.reopen(); len(got) != 1 {
				s.Fatalf("recovered %+v, want the task", got)
			}
		}
		if deaths == 0 {
			s.Fatal("the task ended before its daemon died")
		}
		s.wait(task.ID)
		s.wantLines(texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"), 0, lines)
	},
	"follow across boots until destroyed": func(s *suite) {
		task := s.task(s.p.Lines(0, 50))
		var got []driver.LogLine
		done := make(chan error, 1)
		follows := make(chan struct{}) // closed after the first line
		go func() {
			done <- s.d.Logs(s.ctx, task.ID.Machine, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
				if got = append(got, l); len(got) == 1 {
					close(follows)
				}
				return nil
			})
		}()
		for boot := range 3 {
			task.ID.Boot, task.Command = boot+1, s.p.Lines(50*boot, 50*(boot+1))
			s.run(task)
			if err := s.d.DiscardExit(s.ctx, task.ID); err != nil {
				s.Fatal(err)
			}
		}
		<-follows
		s.destroy(task.ID.Machine)
		if err := <-done; err != nil {
			s.Errorf("Logs returned %v after Destroy, want no error", err)
		}
		// Lines that had not been read yet when the machine was destroyed are lost.
		all := texts(got, "stdout")
		s.wantLines(all, 0, len(all))
	},
	"follow ends when its context ends or its callback fails": func(s *suite) {
		task := s.task(s.p.Run)
		s.start(task)
		ctx, cancel := context.WithCancel(s.ctx)
		err := s.d.Logs(ctx, task.ID.Machine, driver.LogQuery{Follow: true}, func(driver.LogLine) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			s.Errorf("Logs returned %v, want context canceled", err)
		}
		enough := errors.New("enough")
		if err := s.d.Logs(s.ctx, task.ID.Machine, driver.LogQuery{Follow: true}, func(driver.LogLine) error { return enough }); !errors.Is(err, enough) {
			s.Errorf("Logs returned %v, want the callback's error", err)
		}
	},
	"tail and since": func(s *suite) {
		task := s.task(s.p.Lines(0, 100))
		s.run(task)
		for _, c := range []struct{ tail, want int }{{0, 100}, {1, 1}, {10, 10}, {1000, 100}, {-1, 0}} {
			got := texts(s.logs(task.ID.Machine, driver.LogQuery{Tail: c.tail}), "stdout")
			if len(got) != c.want {
				s.Errorf("tail %d returned %d lines, want %d", c.tail, len(got), c.want)
				continue
			}
			s.wantLines(got, 100-c.want, 100)
		}
		time.Sleep(2 * time.Millisecond) // so that the lines have different times
		middle := time.Now()
		task.ID.Boot, task.Command = 2, s.p.Lines(100, 110)
		s.run(task)
		s.wantLines(texts(s.logs(task.ID.Machine, driver.LogQuery{Since: middle}), "stdout"), 100, 110)
		all := s.logs(task.ID.Machine, driver.LogQuery{})
		for i := 0; i < len(all); i += 9 {
			behind := s.logs(task.ID.Machine, driver.LogQuery{After: all[i].Position, Tail: 1, Since: time.Now()})
			if !slices.Equal(behind, all[i+1:]) {
				s.Errorf("after line %d at position %q: got %d lines, want %d", i, all[i].Position, len(behind), len(all)-i-1)
			}
		}
		s.wantLines(texts(s.logs(task.ID.Machine, driver.LogQuery{Since: middle, Tail: 3}), "stdout"), 107, 110)
		if got := s.logs(task.ID.Machine, driver.LogQuery{Since: time.Now().Add(time.Hour)}); len(got) != 0 {
			s.Errorf("Since in the future: got %d lines, want none", len(got))
		}
		if got := s.logs(s.task(nil).ID.Machine, driver.LogQuery{}); len(got) != 0 {
			s.Errorf("got %d lines of an unknown machine, want none", len(got))
		}
	},
	"environment and directory": func(s *suite) {
		task := s.task(s.p.Env("COLOR"))
		task.Env = append(task.Env, "COLOR=deep blue")
		s.run(task)
		task.ID.Boot, task.Command, task.Dir = 2, s.p.Dir, os.TempDir()
		s.run(task)
		task.ID.Boot, task.Dir = 3, ""
		s.run(task)
		got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout")
		if len(got) != 3 || got[0] != "deep blue" || got[1] != os.TempDir() || got[2] == "" || got[2] == got[1] {
			s.Errorf("got %q, want the variable, the requested directory and the machine's own directory", got)
		}
	},
	"another user": func(s *suite) {
		s.need("its user", s.p.User != nil)
		task := s.task(s.p.User)
		task.Dir = os.TempDir()
		task.User = "no-such-user"
		if _, err := s.d.Start(s.ctx, task); s.p.Missing != nil {
			s.wantCode("an unknown user", err, bourse.CodeInvalid)
		}
		task.User = "65534:65534"
		if os.Geteuid() != 0 {
			task.User = "0:0"
			_, err := s.d.Start(s.ctx, task)
			s.wantCode("another user without root privileges", err, bourse.CodeInvalid)
			return
		}
		s.run(task)
		if got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"); len(got) != 1 || got[0] != "65534:65534" {
			s.Errorf("ran as %q, want 65534:65534", got)
		}
	},
}

// wantLines reports a test error unless got consists of "line from" to "line to-1".
func (s *suite) wantLines(got []string, from, to int) {
	s.Helper()
	if len(got) != to-from {
		s.Errorf("got %d lines, want %d", len(got), to-from)
		return
	}
	for i, text := range got {
		if want := fmt.Sprintf("line %d", from+i); text != want {
			s.Errorf("line %d is %q, want %q", i, text, want)
			return
		}
	}
}

// writesOn waits for a new line in the task's log. It returns false if the task ends before a new
// line appears.
func (s *suite) writesOn(id driver.TaskID) bool {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.d.Wait(ctx, id) // fails only if ctx is canceled
		cancel()
	}()
	enough := errors.New("enough")
	err := s.d.Logs(ctx, id.Machine, driver.LogQuery{Tail: -1, Follow: true}, func(driver.LogLine) error { return enough })
	cancel()
	<-ended
	if !errors.Is(err, enough) && (!errors.Is(err, context.Canceled) || s.ctx.Err() != nil) {
		s.Fatalf("Logs: %v", err)
	}
	return errors.Is(err, enough)
}
