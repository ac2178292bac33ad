package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var freezeCases = map[string]func(*suite){
	"a frozen task does nothing until it is thawed": func(s *suite) {
		s.canFreeze()
		task := s.task(s.p.Slow(100_000, 5*time.Millisecond))
		s.start(task)
		s.awaitLines(task.ID.Machine, 3)
		for range 2 {
			s.freeze(task.ID, true)
		}
		s.pass(20 * time.Millisecond) // wait until the log contains the task's output so far
		before := len(s.logs(task.ID.Machine, driver.LogQuery{}))
		s.pass(100 * time.Millisecond)
		if after := len(s.logs(task.ID.Machine, driver.LogQuery{})); after != before {
			s.Errorf("a frozen task continued to write: got %d and later %d log lines", before, after)
		}
		if status, err := s.d.Inspect(s.ctx, task.ID); err != nil || status.Exit != nil {
			s.Errorf("Inspect returned %+v, %v, want a running task", status, err)
		}
		s.usage(task.ID)
		for range 2 {
			s.freeze(task.ID, false)
		}
		s.awaitLines(task.ID.Machine, before+5)
		s.stop(task.ID)
	},
	"a frozen task stays frozen without its daemon": func(s *suite) {
		s.canFreeze()
		task := s.task(s.p.Slow(100_000, 5*time.Millisecond))
		s.start(task)
		s.awaitLines(task.ID.Machine, 1)
		s.freeze(task.ID, true)
		if got := s.reopen(); len(got) != 1 || got[0].Exit != nil {
			s.Fatalf("recovered %+v, want the task", got)
		}
		_, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Exit(0)})
		s.wantCode("exec in a frozen task", err, bourse.CodeFailedPrecondition)
		s.freeze(task.ID, true)
		before := len(s.logs(task.ID.Machine, driver.LogQuery{}))
		s.freeze(task.ID, false)
		s.awaitLines(task.ID.Machine, before+5)
		if _, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Exit(0)}); err != nil {
			s.Errorf("exec in a resumed task: %v", err)
		}
		s.stop(task.ID)
	},
	"a frozen task can be stopped": func(s *suite) {
		s.canFreeze()
		for _, signal := range []bourse.Signal{"SIGTERM", "SIGKILL"} {
			task := s.task(s.p.Run)
			s.start(task)
			s.awaitReady(task.ID.Machine)
			s.freeze(task.ID, true)
			if err := s.d.Stop(s.ctx, task.ID, signal, time.Minute); err != nil {
				s.Fatalf("Stop: %v", err)
			}
			if exit := s.wait(task.ID); exit.Signal != signal.Number() {
				s.Errorf("%s: exit %+v", signal, exit)
			}
			s.wantCode("freezing an ended task", s.d.Freeze(s.ctx, task.ID, true), bourse.CodeFailedPrecondition)
		}
		s.wantProcesses(0)
	},
	"a frozen tree can be killed": func(s *suite) {
		s.canFreeze()
		s.need("a tree of processes", s.p.Tree != nil)
		killed, destroyed := s.task(s.p.Tree), s.task(s.p.Tree)
		for _, task := range []driver.Task{killed, destroyed} {
			s.start(task)
			s.awaitReady(task.ID.Machine)
			s.freeze(task.ID, true)
		}
		if err := s.d.Stop(s.ctx, killed.ID, "SIGKILL", 0); err != nil {
			s.Fatalf("Stop: %v", err)
		}
		s.destroy(destroyed.ID.Machine)
		s.wantProcesses(0)
	},
	"a signal waits for the thaw": func(s *suite) {
		s.canFreeze()
		task := s.task(s.p.Run)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		s.freeze(task.ID, true)
		if err := s.d.Signal(s.ctx, task.ID, "SIGUSR1"); err != nil {
			s.Fatalf("Signal: %v", err)
		}
		s.freeze(task.ID, false)
		if exit := s.wait(task.ID); exit.Signal != bourse.Signal("SIGUSR1").Number() {
			s.Errorf("got exit %+v, want SIGUSR1", exit)
		}
	},
	"killed driver processes end frozen tasks": func(s *suite) {
		killer, ok := s.host.(MachineryKiller)
		if !ok {
			s.Skip("the driver has no processes of its own")
		}
		s.canFreeze()
		task := s.task(s.p.Run)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		s.freeze(task.ID, true)
		killer.KillMachinery(s.T)
		if exit := s.wait(task.ID); exit.Code != -1 || exit.Error == "" {
			s.Errorf("exit of a lost task: got %+v, want code -1 and an error", exit)
		}
		s.wantProcesses(0)
	},
	"freeze errors": func(s *suite) {
		task := s.task(s.p.Run)
		s.wantCode("an unknown task", s.d.Freeze(s.ctx, task.ID, true), bourse.CodeNotFound)
		if s.d.Labels()["suspend"] != "" {
			return
		}
		s.start(task)
		s.wantCode("a task on a host that cannot freeze", s.d.Freeze(s.ctx, task.ID, true), bourse.CodeFailedPrecondition)
		s.stop(task.ID)
	},
}

// canFreeze skips the case if the host cannot freeze tasks.
func (s *suite) canFreeze() {
	s.Helper()
	if s.d.Labels()["suspend"] == "" {
		s.Skip("this host does not freeze processes")
	}
}

func (s *suite) freeze(id driver.TaskID, frozen bool) {
	s.Helper()
	if err := s.d.Freeze(s.ctx, id, frozen); err != nil {
		s.Fatalf("Freeze %t: %v", frozen, err)
	}
}

// pass lets the host's programs run for d.
func (s *suite) pass(d time.Duration) {
	s.Helper()
	s.run(s.task(s.p.Sleep(d, 0)))
}

// awaitLines follows a machine's log until it contains n lines.
func (s *suite) awaitLines(id bourse.MachineID, n int) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var got []driver.LogLine
	err := s.d.Logs(ctx, id, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
		if got = append(got, l); len(got) >= n {
			cancel()
		}
		return nil
	})
	if len(got) < n {
		s.Fatalf("the log ended with %v, want %d lines: %v", slices.Clip(got), n, err)
	}
}
