package drivertest

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var signalCases = map[string]func(*suite){
	"an exit by a signal": func(s *suite) {
		for _, signal := range []bourse.Signal{"SIGTERM", "SIGINT", "SIGKILL", "SIGUSR1"} {
			task := s.task(s.p.Run)
			s.start(task)
			s.awaitReady(task.ID.Machine)
			if err := s.d.Signal(s.ctx, task.ID, signal); err != nil {
				s.Fatalf("Signal: %v", err)
			}
			if exit := s.wait(task.ID); exit.Signal != signal.Number() || exit.Code != -1 {
				s.Errorf("%s: got exit %+v, want its signal and code -1", signal, exit)
			}
			s.wantCode("a signal after the end", s.d.Signal(s.ctx, task.ID, signal), bourse.CodeFailedPrecondition)
		}
		task := s.task(s.p.Run)
		s.start(task)
		s.wantCode("an invalid signal", s.d.Signal(s.ctx, task.ID, "SIGNONE"), bourse.CodeInvalid)
	},
	"stop kills a program that ignores its signal": func(s *suite) {
		task := s.task(s.p.Ignore)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		if err := s.d.Stop(s.ctx, task.ID, "SIGTERM", 50*time.Millisecond); err != nil {
			s.Fatalf("Stop: %v", err)
		}
		s.wantProcesses(0)
		if exit := s.wait(task.ID); exit.Signal != bourse.Signal("SIGKILL").Number() {
			s.Errorf("got exit %+v, want SIGKILL", exit)
		}
		if err := s.d.Stop(s.ctx, task.ID, "SIGTERM", time.Second); err != nil {
			s.Errorf("Stop after the end: %v", err)
		}
	},
	"stop returns when its context ends and can be repeated": func(s *suite) {
		task := s.task(s.p.Ignore)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Millisecond)
		defer cancel()
		s.wantCode("Stop", s.d.Stop(ctx, task.ID, "SIGTERM", time.Hour), bourse.CodeTimeout)
		if status, err := s.d.Inspect(s.ctx, task.ID); err != nil || status.Exit != nil {
			s.Errorf("got %+v, %v, want a running task", status, err)
		}
		if err := s.d.Stop(s.ctx, task.ID, "SIGTERM", 0); err != nil {
			s.Errorf("Stop: %v", err)
		}
		s.wantProcesses(0)
	},
	"stop ends a task stopped by SIGSTOP": func(s *suite) {
		task := s.task(s.p.Run)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		if err := s.d.Signal(s.ctx, task.ID, "SIGSTOP"); err != nil {
			s.Fatal(err)
		}
		s.stop(task.ID)
		if exit := s.wait(task.ID); exit.Signal != bourse.Signal("SIGTERM").Number() {
			s.Errorf("got exit %+v, want SIGTERM", exit)
		}
	},
	"stop kills the whole process tree": func(s *suite) {
		s.need("a tree of processes", s.p.Tree != nil)
		task := s.task(s.p.Tree)
		s.start(task)
		s.awaitReady(task.ID.Machine)
		if err := s.d.Stop(s.ctx, task.ID, "SIGTERM", 200*time.Millisecond); err != nil {
			s.Fatalf("Stop: %v", err)
		}
		s.wantProcesses(0)
	},
	"remaining child processes are killed": func(s *suite) {
		s.need("leaving child processes behind", s.p.Leaver != nil)
		task := s.task(s.p.Leaver)
		if exit := s.run(task); exit.Failed() {
			s.Errorf("got exit %+v, want success", exit)
		}
		s.wantProcesses(0)
	},
	"an open output does not delay the exit": func(s *suite) {
		s.need("escaping from the process group", s.p.Escaper != nil)
		task := s.task(s.p.Escaper)
		if exit := s.run(task); exit.Failed() {
			s.Errorf("got exit %+v, want success", exit)
		}
		if got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"); len(got) != 1 || got[0] != "left" {
			s.Errorf("got output %q, want the line that the task printed before it exited", got)
		}
		s.wantProcesses(0)
	},
}
