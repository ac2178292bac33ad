package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var lifeCases = map[string]func(*suite){
	"exit codes": func(s *suite) {
		for _, code := range []int{0, 1, 3, 255} {
			exit := s.run(s.task(s.p.Exit(code)))
			if exit.Code != code || exit.Signal != 0 || exit.OOMKilled || exit.Error != "" {
				s.Errorf("got exit %+v, want code %d", exit, code)
			}
		}
	},
	"inspect before and after the end": func(s *suite) {
		task := s.task(s.p.Run)
		started := s.start(task)
		status, err := s.d.Inspect(s.ctx, task.ID)
		if err != nil || status != started || status.PID == 0 {
			s.Errorf("running: got %+v, %v, want the status from Start, %+v", status, err, started)
		}
		if err := s.d.Stop(s.ctx, task.ID, "SIGKILL", time.Second); err != nil {
			s.Fatal(err)
		}
		exit := s.wait(task.ID)
		status, err = s.d.Inspect(s.ctx, task.ID)
		if err != nil || status.PID != 0 || status.Exit == nil || *status.Exit != exit || !status.StartedAt.Equal(started.StartedAt) {
			s.Errorf("ended: got %+v, %v, want exit %+v and the same start time", status, err, exit)
		}
	},
	"start is idempotent": func(s *suite) {
		task := s.task(s.p.Run)
		first := s.start(task)
		if again := s.start(task); again != first {
			s.Errorf("second start returned %+v, want %+v", again, first)
		}
		s.wantProcesses(1)
		s.stop(task.ID)
		s.wait(task.ID)
		if again := s.start(task); again.Exit == nil || again.PID != 0 {
			s.Errorf("start after the end returned %+v, want the exit", again)
		}
		s.wantProcesses(0)
	},
	"concurrent starts of one task start it once": func(s *suite) {
		task := s.task(s.p.Run)
		var wg sync.WaitGroup
		got := make([]driver.Status, 8)
		for i := range got {
			wg.Go(func() { got[i], _ = s.d.Start(s.ctx, task) })
		}
		wg.Wait()
		for _, status := range got {
			if status != got[0] || status.PID == 0 {
				s.Errorf("concurrent starts returned %+v and %+v, want the same process", got[0], status)
			}
		}
		s.wantProcesses(1)
	},
	"boot numbers increase": func(s *suite) {
		task := s.task(s.p.Run)
		task.ID.Boot = 2
		s.start(task)
		older, newer := task, task
		older.ID.Boot, newer.ID.Boot = 1, 3
		_, err := s.d.Start(s.ctx, older)
		s.wantCode("start of an older boot", err, bourse.CodeFailedPrecondition)
		_, err = s.d.Start(s.ctx, newer)
		s.wantCode("start of a boot while the previous one runs", err, bourse.CodeFailedPrecondition)
		s.stop(task.ID)
		s.start(newer)
		s.wantProcesses(1)
	},
	"a failed start leaves nothing behind": func(s *suite) {
		commands := map[string][]string{"missing": s.p.Missing, "not executable": s.p.Refused, "empty": {""}, "none": nil}
		for what, command := range commands {
			if command == nil && what != "none" {
				continue
			}
			task := s.task(command)
			_, err := s.d.Start(s.ctx, task)
			s.wantCode(what, err, bourse.CodeInvalid)
			if len(command) > 0 && command[0] != "" && !strings.Contains(fmt.Sprint(err), command[0]) {
				s.Errorf("%s: %q does not name the command %q", what, err, command[0])
			}
			_, err = s.d.Inspect(s.ctx, task.ID)
			s.wantCode(what+", inspect", err, bourse.CodeNotFound)
			task.Command = s.p.Exit(0) // the same id can be used after the failed start
			s.run(task)
		}
		if got := s.reopen(); len(got) != len(commands)-boolToInt(s.p.Refused == nil) {
			s.Errorf("recovered %d tasks, want only those that were started", len(got))
		}
	},
	"unknown tasks": func(s *suite) {
		id := s.task(nil).ID
		_, err := s.d.Inspect(s.ctx, id)
		s.wantCode("Inspect", err, bourse.CodeNotFound)
		_, err = s.d.Wait(s.ctx, id)
		s.wantCode("Wait", err, bourse.CodeNotFound)
		s.wantCode("Signal", s.d.Signal(s.ctx, id, "SIGTERM"), bourse.CodeNotFound)
		s.wantCode("Stop", s.d.Stop(s.ctx, id, "SIGTERM", time.Second), bourse.CodeNotFound)
		_, err = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Exit(0)})
		s.wantCode("Exec", err, bourse.CodeNotFound)
		_, err = s.d.Usage(s.ctx, id)
		s.wantCode("Usage", err, bourse.CodeNotFound)
		s.wantCode("DiscardExit", s.d.DiscardExit(s.ctx, id), "")
		s.wantCode("Destroy", s.d.Destroy(s.ctx, id.Machine), "")
	},
	"discard exit": func(s *suite) {
		task := s.task(s.p.Run)
		s.start(task)
		if err := s.d.DiscardExit(s.ctx, task.ID); err != nil {
			s.Errorf("DiscardExit of a running task: got %v, want no error", err)
		}
		if _, err := s.d.Inspect(s.ctx, task.ID); err != nil {
			s.Errorf("DiscardExit removed a running task: %v", err)
		}
		s.stop(task.ID)
		s.wait(task.ID)
		for range 2 {
			if err := s.d.DiscardExit(s.ctx, task.ID); err != nil {
				s.Errorf("DiscardExit: %v", err)
			}
		}
		_, err := s.d.Inspect(s.ctx, task.ID)
		s.wantCode("Inspect after DiscardExit", err, bourse.CodeNotFound)
		if got := s.reopen(); len(got) != 0 {
			s.Errorf("recovered %+v, want no tasks", got)
		}
	},
	"destroy ends a running task and can be repeated": func(s *suite) {
		task := s.task(s.p.Ignore)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		for range 2 {
			s.destroy(task.ID.Machine)
		}
		s.wantProcesses(0)
		_, err := s.d.Inspect(s.ctx, task.ID)
		s.wantCode("Inspect after Destroy", err, bourse.CodeNotFound)
		s.start(task) // the driver does not remember the destroyed machine
		if got := s.reopen(); len(got) != 1 {
			s.Errorf("recovered %d tasks, want 1", len(got))
		}
	},
	"wait returns when its context ends": func(s *suite) {
		task := s.task(s.p.Run)
		s.start(task)
		ctx, cancel := context.WithCancel(s.ctx)
		done := make(chan error, 1)
		go func() { _, err := s.d.Wait(ctx, task.ID); done <- err }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.Errorf("Wait returned %v, want context canceled", err)
		}
		_, err := s.d.Start(ctx, s.task(s.p.Run))
		s.wantCode("Start with an ended context", err, bourse.CodeCanceled)
	},
	"hostile commands and environments": hostileCase,
	"many at once":                      manyCase,
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// stop ends a task with SIGTERM.
func (s *suite) stop(id driver.TaskID) {
	s.Helper()
	if err := s.d.Stop(s.ctx, id, "SIGTERM", 10*time.Second); err != nil {
		s.Fatalf("Stop %v: %v", id, err)
	}
}

func hostileCase(s *suite) {
	s.need("echo", s.p.Echo != nil)
	for _, text := range []string{
		"$(touch /nowhere); `id`; && rm -rf", "a\tb 'c' \"d\" \\", "\x1b[31m\x07", "é漢\u202e", "-n -e --help", "%s%n%d", "*?[a]", strings.Repeat("x", 100_000),
	} {
		task := s.task(s.p.Echo(text))
		if exit := s.run(task); exit.Failed() {
			s.Errorf("%q: exit %+v", text, exit)
		}
		if got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"); len(got) != 1 || got[0] != text {
			s.Errorf("argument %.60q was printed as %.60q", text, got)
		}
		task.ID.Boot, task.Command = 2, s.p.Env("HOSTILE")
		task.Env = append(task.Env, "HOSTILE="+text)
		s.run(task)
		if got := texts(s.logs(task.ID.Machine, driver.LogQuery{Tail: 1 + len(text)/1024}), "stdout"); got[len(got)-1] != text {
			s.Errorf("variable %.60q was printed as %.60q", text, got)
		}
	}
	for what, task := range map[string]driver.Task{
		"a command of 16 MiB":      {Command: s.p.Echo(strings.Repeat("x", 16<<20))},
		"no boot number":           {Command: s.p.Echo("x"), ID: driver.TaskID{Machine: "00000700000000"}},
		"a path as the machine id": {Command: s.p.Echo("x"), ID: driver.TaskID{Machine: "../../etc/pass", Boot: 1}},
		"a NUL":                    {Command: s.p.Echo("a\x00b")},
		"a missing directory":      {Command: s.p.Echo("x"), Dir: "/no/such/directory"},
	} {
		if task.ID.Machine == "" {
			task.ID = s.task(nil).ID
		}
		task.Image = s.h.Image
		_, err := s.d.Start(s.ctx, task)
		s.wantCode(what, err, bourse.CodeInvalid)
	}
}

// manyCase runs many machines concurrently through their whole life cycle.
func manyCase(s *suite) {
	machines := s.h.Many
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range machines {
		task := s.task(s.p.Exit(i % 7))
		if i%2 == 0 {
			task.Command = s.p.Run
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if _, err := s.d.Start(s.ctx, task); err != nil {
				s.Errorf("start %d: %v", i, err)
				return
			}
			if i%2 == 0 {
				if err := s.d.Stop(s.ctx, task.ID, "SIGTERM", 10*time.Second); err != nil {
					s.Errorf("stop %d: %v", i, err)
				}
			}
			exit, err := s.d.Wait(s.ctx, task.ID)
			if err != nil || (i%2 == 1 && exit.Code != i%7) || (i%2 == 0 && exit.Signal == 0) {
				s.Errorf("machine %d: exit %+v, %v", i, exit, err)
			}
			if i%3 == 0 {
				err = errors.Join(s.d.DiscardExit(s.ctx, task.ID), s.d.Destroy(s.ctx, task.ID.Machine))
			}
			if err != nil {
				s.Errorf("destroy %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	s.wantProcesses(0)
	if got := s.reopen(); len(got) != machines-(machines+2)/3 {
		s.Errorf("recovered %d tasks, want %d", len(got), machines-(machines+2)/3)
	}
}
