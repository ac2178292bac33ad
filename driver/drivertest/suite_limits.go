package drivertest

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var limitCases = map[string]func(*suite){
	"memory": func(s *suite) {
		s.enforced("memory", s.p.Allocate != nil)
		small := s.task(s.p.Allocate(256))
		small.Limits = driver.Limits{Memory: 64}
		if exit := s.run(small); !exit.Failed() || !exit.OOMKilled && !s.h.Sizes { // a small machine may refuse the allocation
			s.Errorf("256 MiB under a limit of 64: got exit %+v, want it OOM-killed", exit)
		}
		large := s.task(s.p.Allocate(32))
		large.Limits = driver.Limits{Memory: 512}
		if exit := s.run(large); exit.OOMKilled || exit.Failed() {
			s.Errorf("32 MiB under a limit of 512: got exit %+v, want success", exit)
		}
		s.wantProcesses(0)
	},
	"a tiny memory limit": func(s *suite) {
		s.enforced("memory", s.p.Allocate != nil && !s.h.Sizes)
		task := s.task(s.p.Allocate(256))
		task.Limits = driver.Limits{Memory: 1}
		if exit := s.run(task); !exit.OOMKilled {
			s.Errorf("got exit %+v, want it OOM-killed", exit)
		}
		s.run(s.task(s.p.Exit(0))) // other tasks can still run
	},
	"exec counts against its task's memory": func(s *suite) {
		s.enforced("memory", s.p.Allocate != nil)
		task := s.task(s.p.Run)
		task.Limits = driver.Limits{Memory: 64}
		s.start(task)
		got, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Allocate(256)})
		if err != nil || !got.Exit.Failed() {
			s.Errorf("an exec that allocates 256 MiB in a task limited to 64 MiB: got exit %+v, %v, want it killed", got.Exit, err)
		}
	},
	"pids": func(s *suite) {
		s.enforced("pids", s.p.Forks != nil)
		task := s.task(s.p.Forks(50))
		task.Limits = driver.Limits{PIDs: 10}
		if exit := s.run(task); !exit.Failed() {
			s.Errorf("50 processes under a limit of 10: got exit %+v, want a failure", exit)
		}
		task = s.task(s.p.Forks(50))
		task.Limits = driver.Limits{PIDs: 100}
		if exit := s.run(task); exit.Failed() {
			s.Errorf("50 processes under a limit of 100: got exit %+v, want success", exit)
		}
		s.wantProcesses(0)
	},
	"all valid limits are accepted": func(s *suite) {
		if s.h.Sizes {
			s.Skip("a virtual machine cannot boot with every size")
		}
		for _, l := range []driver.Limits{
			{CPUWeight: 1, CPUQuota: 10},
			{CPUWeight: 1000, CPUQuota: 1000},
			{CPUWeight: bourse.MaxCPUs * 1000, CPUQuota: bourse.MaxCPUs * 1000},
			{Memory: bourse.MaxMemory, PIDs: 1 << 20},
		} {
			task := s.task(s.p.Exit(0))
			task.Limits = l
			if exit := s.run(task); exit.Failed() {
				s.Errorf("limits %+v: got exit %+v, want success", l, exit)
			}
		}
	},
}

// enforced skips the case unless the driver reports that it enforces the limit and the harness has
// a program for the case.
func (s *suite) enforced(limit string, provided bool) {
	s.Helper()
	s.need("reaching a limit of "+limit, provided)
	if how := s.d.Labels()["limit."+limit]; how != "cgroup" {
		s.Skipf("limit.%s is %q on this host", limit, how)
	}
}
