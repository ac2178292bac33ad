package drivertest

import (
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var usageCases = map[string]func(*suite){
	"usage of a busy task": func(s *suite) {
		s.need("being busy", s.p.Busy != nil)
		task := s.task(s.p.Busy)
		task.Limits = driver.Limits{CPUWeight: 1000}
		s.start(task)
		s.awaitReady(task.ID.Machine)
		first := s.usage(task.ID)
		if first.Memory <= 0 || first.PIDs < 1 {
			s.Errorf("usage is %+v, want some memory and at least one process", first)
		}
		if first.CPU < 0 {
			s.Skip("this host does not measure processor time")
		}
		for u := first; u.CPU < first.CPU+50*time.Millisecond; u = s.usage(task.ID) {
			select {
			case <-time.After(5 * time.Millisecond): // usage grows only as time passes
			case <-s.ctx.Done():
				s.Fatalf("usage is %+v, was %+v, want more processor time", u, first)
			}
		}
		s.stop(task.ID)
		s.wait(task.ID)
		_, err := s.d.Usage(s.ctx, task.ID)
		s.wantCode("usage after the end", err, bourse.CodeFailedPrecondition)
	},
	"usage includes commands executed in a task": func(s *suite) {
		id := s.running()
		before := s.usage(id)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.d.Exec(s.ctx, id, driver.Exec{Command: s.p.Ignore})
		}()
		s.awaitProcesses(2)
		if _, ok := s.host.(Lister); ok {
			if now := s.usage(id); now.PIDs <= before.PIDs && s.d.Labels()["cgroup"] != "none" {
				s.Errorf("usage is %+v, was %+v, want one more process", now, before)
			}
		}
		s.stop(id)
		<-done
	},
	"a CPU quota is enforced": func(s *suite) {
		if s.h.Sizes {
			s.Skip("with a low quota, a virtual machine boots too slowly")
		}
		s.enforced("cpu", s.p.Busy != nil)
		var wg sync.WaitGroup
		for _, l := range []driver.Limits{
			{CPUQuota: 100},
			{CPUQuota: 125, CPUPeriod: 80 * time.Millisecond},
			{CPUQuota: 125, CPUPeriod: 80 * time.Millisecond, CPUBurst: 5 * time.Millisecond},
		} {
			task := s.task(s.p.Busy)
			task.Limits = l
			s.start(task)
			s.awaitReady(task.ID.Machine)
			wg.Go(func() { s.checkQuota(task) })
		}
		wg.Wait()
	},
}

// checkQuota checks a busy task's processor usage against its quota.
func (s *suite) checkQuota(task driver.Task) {
	begun, first := time.Now(), s.usage(task.ID)
	if first.CPU < 0 {
		s.Logf("processor time is not accounted on this host, so the quota is not tested")
		return
	}
	select {
	case <-time.After(1200 * time.Millisecond): // many periods of the quota
	case <-s.ctx.Done():
	}
	used, took := s.usage(task.ID).CPU-first.CPU, time.Since(begun)
	share := float64(used) / float64(took)
	want := float64(task.Limits.CPUQuota) / 1000
	s.Logf("%+v: used %.3f of a processor", task.Limits, share)
	if share > 1.5*want+0.03 { // usage is counted in steps of 10 ms, and the interval may contain parts of periods
		s.Errorf("%+v: used %.3f of a processor, want at most about %.3f", task.Limits, share, want)
	}
	for s.usage(task.ID).CPU <= first.CPU { // a busy host may not have run the task yet
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			s.Errorf("%+v: no processor time used, want some", task.Limits)
			return
		}
	}
}

// usage returns a running task's resource usage.
func (s *suite) usage(id driver.TaskID) driver.Usage {
	s.Helper()
	u, err := s.d.Usage(s.ctx, id)
	if err != nil {
		s.Errorf("Usage: %v", err)
	}
	return u
}
