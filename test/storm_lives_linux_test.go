package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// suspend suspends an order's machine, which may already be suspended. The machine must
// keep its processes.
func (s *killStorm) suspend(rng *rand.Rand, o *stormOrder) {
	if !s.freezes || o.ended != "filled" {
		return
	}
	before := s.processes(o)
	o.ended = ""
	s.repeat(rng, func(api *machinesapi.Client) bool {
		if o.why = api.Suspend(s.t.Context(), app, o.machine, ""); o.why != nil {
			return false
		}
		o.ended, o.frozen = "filled", true
		s.counts.suspends.Add(1)
		return true
	})
	s.same(o, "suspended", before)
}

// resume resumes an order's machine, which must still have the same processes.
func (s *killStorm) resume(rng *rand.Rand, o *stormOrder) {
	if !o.frozen || o.ended != "filled" {
		return
	}
	before := s.processes(o)
	o.ended = ""
	s.repeat(rng, func(api *machinesapi.Client) bool {
		if _, o.why = api.Start(s.t.Context(), app, o.machine, ""); o.why != nil {
			return false
		}
		o.ended, o.frozen = "filled", false
		s.counts.resumes.Add(1)
		return true
	})
	s.same(o, "resumed", before)
}

// processes waits until an order's machine runs, and returns the ids of its processes. A
// process that has just been started has the program's command line only after it has
// executed the program.
func (s *killStorm) processes(o *stormOrder) (pids []string) {
	if !within(waitTimeout, func() bool { pids = pidsOf(s.t, s.program(o)); return len(pids) > 0 }) {
		s.t.Errorf("machine %s of %s was reported as %s, but its process does not run", o.machine, o.worker, o.ended)
	}
	return pids
}

// same reports an error unless at least one of the machine's earlier processes is still
// running. It does not compare all of them, because a shell that forks is briefly two
// processes.
func (s *killStorm) same(o *stormOrder, what string, before []string) {
	if o.ended != "filled" {
		return
	}
	after := s.processes(o)
	if !slices.ContainsFunc(before, func(pid string) bool { return slices.Contains(after, pid) }) {
		s.t.Errorf("machine %s of %s was %s: it had processes %v and now has %v, want at least one in common", o.machine, o.worker, what, before, after)
	}
}

// unsettled describes how the state of an order's machine differs from the last reply to its client, or returns "" if
// it does not differ.
func (s *killStorm) unsettled(o *stormOrder) (problem string) {
	want := bourse.StateStarted
	if o.frozen {
		want = bourse.StateSuspended
	}
	if m, err := s.brokers[0].Machine(s.t.Context(), app, o.machine); err != nil || m.State != want {
		return fmt.Sprintf("unsettled: machine %s of %s was reported as %s, but is %q (%v)", o.machine, o.worker, want, m.State, err)
	}
	return ""
}

// stormSpare contains a machine with a standby, and a machine that waits for its schedule.
type stormSpare struct {
	host, standby        *server     // workers of the machine with the standby, and of the standby
	away                 atomic.Bool // the worker host is temporarily down
	machine, spare, cron machinesapi.Machine
	mark                 string
	stoodIn              int // number of times that the standby was started
}

// standBy creates these machines before servers are killed.
func (s *killStorm) standBy() {
	p := &s.spare
	p.host, p.standby, p.mark = s.servers[3], s.servers[5], strings.Replace(s.mark, "storm", "spare", 1)
	api := s.brokers[0]
	p.machine = create(s.t, api, on("w0", sleeper("gru", p.mark)))
	spare := on("w2", sleeper("gru", p.mark))
	spare.Config.Standbys = []bourse.MachineID{p.machine.ID}
	p.spare = create(s.t, api, spare)
	switch err := api.Suspend(s.t.Context(), app, p.machine.ID, ""); bourse.CodeOf(err) {
	case "":
		s.freezes = true
		if _, err := api.Start(s.t.Context(), app, p.machine.ID, ""); err != nil {
			s.t.Fatal(err)
		}
	case bourse.CodeFailedPrecondition:
		s.t.Logf("machines cannot be suspended: %v", err)
	default:
		s.t.Fatal(err)
	}
	cron := on("w1", sleeper("mad", ""))
	cron.Config.Init.Exec, cron.Config.Schedule = []string{"/bin/true"}, bourse.Hourly
	p.cron = create(s.t, api, cron)
}

// problems describes what is wrong after all servers are connected again.
func (p *stormSpare) problems(s *killStorm) (out []string) {
	for _, want := range []struct {
		id     bourse.MachineID
		state  bourse.State
		starts int // 0 means any number
	}{
		{p.machine.ID, bourse.StateStarted, 1},
		{p.spare.ID, bourse.StateStopped, 0},
		{p.cron.ID, bourse.StateStopped, 1},
	} {
		m, err := s.brokers[0].Machine(s.t.Context(), app, want.id)
		if want.id == p.spare.ID {
			p.stoodIn = m.Starts
		}
		if err != nil || m.State != want.state || want.starts > 0 && m.Starts != want.starts {
			out = append(out, fmt.Sprintf("machine %s is %q after %d starts (%v), want %s", want.id, m.State, m.Starts, err, want.state))
		}
	}
	if pids := pidsOf(s.t, p.mark); len(pids) != 1 {
		out = append(out, fmt.Sprintf("the machine and its spare have the processes %v", pids))
	}
	return out
}
