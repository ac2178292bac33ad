package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Whether a driver has made anything ready by the time of a Start is its own
// business: these cases hold either way.
var prepareCases = map[string]func(*suite){
	"prepared and started": func(s *suite) {
		task := s.task(s.p.Run)
		s.prepare(task)
		s.prepare(task)
		first := s.start(task)
		if again := s.start(task); again != first {
			s.Errorf("second start gave %+v, want %+v", again, first)
		}
		if status, err := s.d.Inspect(s.ctx, task.ID); err != nil || status != first {
			s.Errorf("Inspect gave %+v, %v, want %+v", status, err, first)
		}
		s.awaitReady(task.ID.Machine)
		s.wantProcesses(1)
		if got := s.reopen(); len(got) != 1 || got[0] != first {
			s.Errorf("recovered %+v, want %+v", got, first)
		}
		s.stop(task.ID)
		if exit := s.wait(task.ID); exit.Signal == 0 {
			s.Errorf("exit %+v, want a signal", exit)
		}
		s.wantProcesses(0)
	},
	"prepared, and its program runs once": func(s *suite) {
		for code := range 3 {
			task := s.task(s.p.Exit(code))
			s.prepare(task)
			if exit := s.run(task); exit.Code != code || exit.Error != "" {
				s.Errorf("exit %+v, want code %d", exit, code)
			}
		}
		task := s.task(s.p.Print("out", "err"))
		s.prepare(task)
		s.run(task)
		if got := s.logs(task.ID.Machine, driver.LogQuery{}); len(got) != 2 {
			s.Errorf("the log is %+v, want a line of each stream", got)
		}
	},
	"prepared, and asked for at once": func(s *suite) {
		task := s.task(s.p.Ignore)
		s.prepare(task)
		s.start(task)
		if r, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Exit(3)}); err != nil || r.Exit.Code != 3 {
			s.Errorf("Exec gave %+v, %v, want code 3", r, err)
		}
		next := s.task(s.p.Run)
		s.prepare(next)
		s.start(next)
		s.wantCode("Signal", s.d.Signal(s.ctx, next.ID, "SIGKILL"), "")
		if exit := s.wait(next.ID); exit.Signal != bourse.Signal("SIGKILL").Number() {
			s.Errorf("exit %+v, want SIGKILL", exit)
		}
	},
	"prepared and never started": func(s *suite) {
		task, ran := s.writer()
		s.prepare(task)
		_, err := s.d.Inspect(s.ctx, task.ID)
		s.wantCode("Inspect", err, bourse.CodeNotFound)
		s.wantCode("Signal", s.d.Signal(s.ctx, task.ID, "SIGCONT"), bourse.CodeNotFound)
		s.destroy(task.ID.Machine)
		s.wantProcesses(0)
		ran(false)
		s.run(task) // nothing is held against the same id
		ran(true)
	},
	"prepared, and the daemon dies": func(s *suite) {
		task, ran := s.writer()
		s.prepare(task)
		if got := s.reopen(); len(got) != 0 {
			s.Errorf("recovered %+v, want nothing", got)
		}
		s.wantProcesses(0)
		ran(false)
		s.run(task)
		ran(true)
	},
	"prepared, and the machinery dies": func(s *suite) {
		killer, ok := s.host.(MachineryKiller)
		if !ok {
			s.Skip("the driver has no machinery that could be killed")
		}
		task, ran := s.writer()
		s.prepare(task)
		killer.KillMachinery(s.T)
		s.reopen()
		s.wantProcesses(0)
		ran(false)
		s.retry(func() error { _, err := s.d.Start(s.ctx, task); return err })
		s.wait(task.ID)
		ran(true)
	},
	"prepared, and another task is started": func(s *suite) {
		task, ran := s.writer()
		s.prepare(task)
		other := task
		other.Command = s.p.Exit(5)
		if exit := s.run(other); exit.Code != 5 {
			s.Errorf("exit %+v, want code 5", exit)
		}
		task.ID.Boot = 2
		s.prepare(task)
		other.ID.Boot = 3
		if exit := s.run(other); exit.Code != 5 {
			s.Errorf("exit %+v, want code 5", exit)
		}
		s.wantProcesses(0)
		ran(false)
		_, err := s.d.Start(s.ctx, task)
		s.wantCode("start of an older boot", err, bourse.CodeFailedPrecondition)
	},
	"prepared, what cannot be started": func(s *suite) {
		for _, command := range [][]string{s.p.Missing, s.p.Refused, {""}, nil} {
			task := s.task(command)
			s.prepare(task)
			_, err := s.d.Start(s.ctx, task)
			s.wantCode(fmt.Sprint(command), err, bourse.CodeInvalid)
			task.Command = s.p.Exit(0)
			s.run(task)
		}
	},
	"prepared many at once": func(s *suite) {
		first := s.task(s.p.Exit(0))
		s.prepare(first)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				task := s.task(s.p.Exit(i))
				s.d.(driver.Preparer).Prepare(task) //nolint:forcetypeassert // the case has begun with a task that was prepared
				var starts sync.WaitGroup
				for range 2 {
					starts.Go(func() {
						if _, err := s.d.Start(s.ctx, task); err != nil {
							s.Errorf("Start: %v", err)
						}
					})
				}
				starts.Wait()
				if exit, err := s.d.Wait(s.ctx, task.ID); err != nil || exit.Code != i {
					s.Errorf("exit %+v, %v, want code %d", exit, err, i)
				}
			})
		}
		wg.Wait()
		s.destroy(first.ID.Machine)
		s.wantProcesses(0)
	},
}

// prepare has the driver prepare a task, and gives it some time for that. The
// case is skipped for a driver that does not.
func (s *suite) prepare(task driver.Task) {
	s.Helper()
	p, ok := s.d.(driver.Preparer)
	if !ok {
		s.Skip("the driver prepares nothing")
	}
	p.Prepare(task)
	l, ok := s.host.(Lister)
	for end := time.Now().Add(50 * time.Millisecond); ok && l.Processes(s.T) == 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// writer gives a task whose program leaves a file, and what fails unless it has
// run as wanted.
func (s *suite) writer() (task driver.Task, ran func(want bool)) {
	if s.p.Write == nil { // no files: then it prints
		task = s.task(s.p.Print("ran", ""))
		return task, func(want bool) {
			s.Helper()
			if got := slices.Contains(texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"), "ran"); got != want {
				s.Errorf("the program has run: %t, want %t", got, want)
			}
		}
	}
	path := filepath.Join(s.TempDir(), "ran")
	return s.task(s.p.Write(path, "ran")), func(want bool) {
		s.Helper()
		if _, err := os.Stat(path); (err == nil) != want {
			s.Errorf("the program has run: %t, want %t", err == nil, want)
		}
	}
}
