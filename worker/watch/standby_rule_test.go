package watch_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/watch"
)

func id(tag int) bourse.MachineID { return bourse.MachineID(fmt.Sprintf("%06x%08x", tag, 1)) }

const failoverDelay = 10 * time.Second

// spareOf returns a machine that is a standby for the machines in list.
func spareOf(self bourse.MachineID, state bourse.State, standsIn bourse.MachineID, list ...bourse.MachineID) bourse.Machine {
	return bourse.Machine{
		ID: self, State: state, Worker: bourse.WorkerID("w" + string(self[:6])),
		Config: bourse.Config{Standbys: list}, Boot: bourse.Boot{PromotedFor: standsIn},
	}
}

func TestDecide(t *testing.T) {
	const (
		in   = watch.Promote
		down = watch.Demote
		rest = watch.ResetStandby
		none = watch.StayStandby
	)
	primary, self, lesser, greater := id(9), id(5), id(4), id(6)
	type spare = bourse.Machine
	for name, c := range map[string]struct {
		self    spare
		state   bourse.State // the primary machine's state; "" if it is not in the view
		host    watch.Host   // the state of the primary machine's worker
		others  []spare
		deaf    bourse.MachineID // a standby whose worker is lost
		wanted  bool
		want    watch.StandbyAct
		seconds int
	}{
		"the primary runs":                        {state: "started", host: watch.HostReachable, want: none},
		"its worker is lost":                      {state: "started", host: watch.HostLost, want: in, seconds: 10},
		"its worker waits to restart it":          {state: "restarting", host: watch.HostLost, want: in, seconds: 10},
		"it was stopped, and is lost":             {state: "stopped", host: watch.HostLost, want: none},
		"it was being stopped, and is lost":       {state: "stopping", host: watch.HostLost, want: none},
		"it was stopped":                          {state: "stopped", host: watch.HostReachable, want: none},
		"it could not be started":                 {state: "failed", host: watch.HostReachable, want: in, seconds: 10},
		"it was destroyed":                        {host: watch.HostReachable, want: none},
		"nothing is known about it":               {host: watch.HostUnknown, want: none},
		"it is not in the view, and lost":         {host: watch.HostLost, want: none},
		"its worker was removed":                  {host: watch.HostRemoved, wanted: true, want: in},
		"stopped, and removed":                    {host: watch.HostRemoved, want: none},
		"this standby runs already":               {self: spareOf(self, "started", "", primary), state: "started", host: watch.HostLost, want: none},
		"this standby is already promoted":        {self: spareOf(self, "started", primary, primary), state: "started", host: watch.HostLost, want: none},
		"this standby has exited in the meantime": {self: spareOf(self, "stopped", primary, primary), state: "started", host: watch.HostLost, want: none},
		"exited, and the primary is back":         {self: spareOf(self, "stopped", primary, primary), state: "stopped", host: watch.HostReachable, want: rest},
		"the primary is back":                     {self: spareOf(self, "started", primary, primary), state: "started", host: watch.HostReachable, want: down, seconds: 5},
		"back, not started yet":                   {self: spareOf(self, "started", primary, primary), state: "starting", host: watch.HostReachable, want: none},
		"back, and stopped":                       {self: spareOf(self, "started", primary, primary), state: "stopped", host: watch.HostReachable, want: none},
		"destroyed in the meantime":               {self: spareOf(self, "started", primary, primary), host: watch.HostReachable, want: none},
		"taken off the list":                      {self: spareOf(self, "started", primary, id(8)), state: "started", host: watch.HostReachable, want: none},
		"a lower standby goes first":              {state: "started", host: watch.HostLost, others: []spare{spareOf(lesser, "stopped", "", primary)}, want: in, seconds: 15},
		"a higher one does not":                   {state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "stopped", "", primary)}, want: in, seconds: 10},
		"a lower one that failed":                 {state: "started", host: watch.HostLost, others: []spare{spareOf(lesser, "failed", primary, primary)}, want: in, seconds: 10},
		"a lower one that is unreachable":         {state: "started", host: watch.HostLost, others: []spare{spareOf(lesser, "started", primary, primary)}, deaf: lesser, want: in, seconds: 10},
		"a lower one for another machine":         {state: "started", host: watch.HostLost, others: []spare{spareOf(lesser, "started", "", id(8))}, want: in, seconds: 10},
		"another stands in":                       {state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "starting", primary, primary)}, want: none},
		"another is promoted for another":         {state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "started", id(8), primary, id(8))}, want: in, seconds: 10},
		"another was stopped since":               {state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "stopped", primary, primary)}, want: none},
		"another was started by a user":           {state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "started", "", primary)}, want: none},
		"two are promoted, the lower stays":       {self: spareOf(self, "started", primary, primary), state: "started", host: watch.HostLost, others: []spare{spareOf(greater, "started", primary, primary)}, want: none},
		"two are promoted, the higher stops":      {self: spareOf(self, "started", primary, primary), state: "started", host: watch.HostLost, others: []spare{spareOf(lesser, "started", primary, primary)}, want: down, seconds: 5},
	} {
		t.Run(name, func(t *testing.T) {
			if c.self.ID == "" {
				c.self = spareOf(self, "stopped", "", primary)
			}
			s := &watch.StandbyInput{Machines: map[bourse.MachineID]*bourse.Machine{self: &c.self}, Wanted: map[bourse.MachineID]bool{primary: c.wanted}}
			if c.state != "" {
				s.Machines[primary] = &bourse.Machine{ID: primary, State: c.state, Worker: "w9"}
			}
			for i := range c.others {
				s.Machines[c.others[i].ID] = &c.others[i]
			}
			s.Host = func(tag bourse.WorkerTag) watch.Host {
				switch tag {
				case primary.Tag():
					return c.host
				case c.deaf.Tag():
					return watch.HostLost
				}
				return watch.HostReachable
			}
			got := watch.DecideStandby(&c.self, s, failoverDelay)
			if got.Act != c.want || got.After != time.Duration(c.seconds)*time.Second {
				t.Errorf("%q after %s, want %q after %d s", got.Act, got.After, c.want, c.seconds)
			}
		})
	}
}

// world simulates several workers, each with a standby, and the worker of the machine that the standbys can replace.
type world struct {
	now     time.Time
	primary bourse.Machine
	up      bool // whether the primary machine's worker is up
	spares  []*site
	cut     map[[2]int]bool // pairs of sites that cannot communicate; -1 is the primary machine's worker
}

// site is a worker with a standby.
type site struct {
	spare   bourse.Machine
	up      bool
	pending watch.Pending
	heard   map[bourse.MachineID]bourse.Machine // other sites' machines, as this site knows them
	late    map[bourse.MachineID]news
}

type news struct {
	m  bourse.Machine
	at time.Time // when the update arrives at this site
}

const (
	step  = 200 * time.Millisecond
	delay = 800 * time.Millisecond // how long updates take to arrive; less than SettleTime
)

func newWorld(spares int) *world {
	w := &world{now: time.Unix(0, 0), up: true, cut: map[[2]int]bool{}}
	w.primary = bourse.Machine{ID: id(100), State: bourse.StateStarted, Worker: "w100"}
	for i := range spares {
		w.spares = append(w.spares, &site{
			spare: spareOf(id(i+1), bourse.StateStopped, "", w.primary.ID), up: true,
			heard: map[bourse.MachineID]bourse.Machine{w.primary.ID: w.primary}, late: map[bourse.MachineID]news{},
		})
	}
	w.run(2 * delay)
	return w
}

func (w *world) hears(i, j int) bool {
	up := func(n int) bool { return n < 0 && w.up || n >= 0 && w.spares[n].up }
	return i == j || up(i) && up(j) && !w.cut[[2]int{min(i, j), max(i, j)}]
}

// run simulates the passing of time. It returns the largest number of standbys that ran
// at the same time.
func (w *world) run(d time.Duration) (most int) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(step) {
		for i, s := range w.spares {
			s.listen(w, -1, i, &w.primary)
			for j, other := range w.spares {
				s.listen(w, j, i, &other.spare)
			}
		}
		for i, s := range w.spares {
			if s.up {
				s.decide(w, i)
			}
		}
		most = max(most, len(w.running()))
	}
	return most
}

// listen receives another site's update about a machine after the delay.
func (s *site) listen(w *world, from, to int, m *bourse.Machine) {
	if w.hears(from, to) && from != to {
		if n, ok := s.late[m.ID]; !ok || n.m.State != m.State || n.m.Boot.PromotedFor != m.Boot.PromotedFor {
			s.late[m.ID] = news{*m, w.now.Add(delay)}
		}
	}
	if n, ok := s.late[m.ID]; ok && !w.now.Before(n.at) {
		s.heard[m.ID] = n.m
	}
}

func (s *site) decide(w *world, self int) {
	sight := &watch.StandbyInput{Machines: map[bourse.MachineID]*bourse.Machine{}, Host: func(tag bourse.WorkerTag) watch.Host {
		n := int(tag) - 1
		if n >= len(w.spares) {
			n = -1
		}
		if w.hears(n, self) {
			return watch.HostReachable
		}
		return watch.HostLost
	}}
	for id, m := range s.heard {
		sight.Machines[id] = &m
	}
	v := watch.DecideStandby(&s.spare, sight, failoverDelay)
	if v.Act == watch.StayStandby {
		s.pending = watch.Pending{}
		return
	}
	if due, _ := s.pending.Due(v, w.now); !due {
		return
	}
	switch v.Act {
	case watch.Promote:
		s.spare.State, s.spare.Boot.PromotedFor = bourse.StateStarted, v.Primary
	case watch.Demote:
		s.spare.State, s.spare.Boot.PromotedFor = bourse.StateStopped, ""
	case watch.ResetStandby:
		s.spare.Boot.PromotedFor = ""
	case watch.StayStandby:
	}
}

func (w *world) running() (out []bourse.MachineID) {
	for _, s := range w.spares {
		if s.spare.State == bourse.StateStarted {
			out = append(out, s.spare.ID)
		}
	}
	return out
}

// Whatever fails, once all sites have been able to communicate for some time, exactly one standby runs if the machine
// is lost, and none if the machine runs. As long as the standbys can communicate, and no daemon restarts, which would
// reset its waiting time, no two standbys run at the same time.
func TestOneStandbyIsPromoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.IntRange(1, 4).Draw(t, "spares"))
		enough := failoverDelay + time.Duration(len(w.spares)+2)*watch.SettleTime(failoverDelay) + 4*delay
		partitioned := false
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			i := rapid.IntRange(0, len(w.spares)-1).Draw(t, "spare")
			switch rapid.SampledFrom([]string{"primary", "spare", "bounce", "cut", "heal"}).Draw(t, "what") {
			case "primary":
				w.up = !w.up
			case "spare": // a host that goes down takes its machine with it, and restarts the machine when it is back
				w.spares[i].up = !w.spares[i].up
				partitioned = true // its machine keeps running although nobody can reach it
			case "bounce": // the daemon's wait starts over, and may end at the same moment as the next standby's
				partitioned = partitioned || w.spares[i].pending != watch.Pending{}
				w.spares[i].pending = watch.Pending{}
			case "cut":
				j := rapid.IntRange(-1, len(w.spares)-1).Draw(t, "from")
				w.cut[[2]int{min(i, j), max(i, j)}] = true
				partitioned = true // even if only one standby loses contact, because it has then waited longer
			case "heal":
				clear(w.cut)
			}
			most := w.run(time.Duration(rapid.IntRange(1, 125).Draw(t, "time")) * step)
			if most > 1 && !partitioned {
				t.Fatalf("%d standbys run at the same time", most)
			}
		}
		clear(w.cut)
		for _, s := range w.spares {
			s.up = true
		}
		w.run(2 * enough)
		switch got := w.running(); {
		case w.up && len(got) != 0:
			t.Fatalf("the machine runs, but so do %v", got)
		case !w.up && len(got) != 1:
			t.Fatalf("the machine is lost, but %v run", got)
		}
	})
}
