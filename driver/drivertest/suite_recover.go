package drivertest

import (
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var recoverCases = map[string]func(*suite){
	"a daemon's death is invisible": func(s *suite) {
		var want []driver.Status
		for range 5 {
			want = append(want, s.start(s.task(s.p.Run)))
		}
		for range 3 {
			got := s.reopen()
			byID := func(a, b driver.Status) int { return strings.Compare(string(a.ID.Machine), string(b.ID.Machine)) }
			slices.SortFunc(got, byID)
			if !slices.Equal(got, want) {
				s.Fatalf("recovered %+v, want %+v", got, want)
			}
		}
		for _, status := range want {
			s.stop(status.ID)
			if exit := s.wait(status.ID); exit.Signal == 0 {
				s.Errorf("got exit %+v, want a signal", exit)
			}
		}
	},
	"an exit without a running daemon is reported later": func(s *suite) {
		task := s.task(s.p.Sleep(50*time.Millisecond, 9))
		s.start(task)
		old := s.d
		s.reopen()
		if status, err := old.Inspect(s.ctx, task.ID); status.Exit == nil { // otherwise, the task ended while the old daemon was still connected
			s.wantCode("the old daemon's driver", err, bourse.CodeUnavailable)
		}
		if exit := s.wait(task.ID); exit.Code != 9 {
			s.Errorf("got exit %+v, want code 9", exit)
		}
		for range 2 {
			got := s.reopen()
			if len(got) != 1 || got[0].Exit == nil || got[0].Exit.Code != 9 {
				s.Errorf("recovered %+v, want the exit with code 9", got)
			}
		}
		if again := s.start(task); again.Exit == nil {
			s.Errorf("Start returned %+v, want the exit", again)
		}
	},
	"killed driver processes are replaced": func(s *suite) {
		killer, ok := s.host.(MachineryKiller)
		if !ok {
			s.Skip("the driver has no processes of its own")
		}
		runs, ended := s.task(s.p.Run), s.task(s.p.Exit(4))
		s.start(runs)
		s.run(ended)
		killer.KillMachinery(s.T)
		exit := s.wait(runs.ID)
		if exit.Code != -1 || exit.Error == "" {
			s.Errorf("exit of a lost task: got %+v, want code -1 and an error", exit)
		}
		s.wantProcesses(0)
		if exit := s.wait(ended.ID); exit.Code != 4 {
			s.Errorf("exit of a task that had already ended: got %+v, want code 4", exit)
		}
		s.retry(func() error { _, err := s.d.Start(s.ctx, s.task(s.p.Run)); return err })
		if got := s.reopen(); len(got) != 3 {
			s.Errorf("recovered %+v, want three tasks: the lost task, the ended task and the new task", got)
		}
	},
	"driver processes are killed between two daemons": func(s *suite) {
		killer, ok := s.host.(MachineryKiller)
		if !ok {
			s.Skip("the driver has no processes of its own")
		}
		s.start(s.task(s.p.Run))
		killer.KillMachinery(s.T)
		s.reopen()
		s.wantProcesses(0)
	},
}

// retry calls fn again while it returns CodeUnavailable.
func (s *suite) retry(fn func() error) {
	s.Helper()
	for {
		err := fn()
		if err == nil {
			return
		}
		if bourse.CodeOf(err) != bourse.CodeUnavailable || s.ctx.Err() != nil {
			s.Fatalf("got %v, want eventual success", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.ctx.Done():
		}
	}
}
