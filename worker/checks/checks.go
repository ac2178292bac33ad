// Package checks runs the health checks of a worker's machines and records what
// they find: one goroutine for each check of each started machine. A check
// changes nothing but its status in the machine's record, and that only when the
// status becomes another, so that a restart of the daemon finds what was known
// and a machine that is well costs no write.
//
// Results belong to one start of a machine: those of an earlier one do not count
// (package check). In the grace period after a start a failure is not recorded.
package checks

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/check"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/service"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

const (
	// A start is some changes within milliseconds: gather makes them one look.
	gather = 20 * time.Millisecond
	// Until a check has passed it is repeated sooner than its interval says, so
	// that a machine that has just become ready is known to be: after an eighth of the
	// time that it has been tried, so that no more than that is lost.
	soonest = 100 * time.Millisecond
	sooner  = 8
)

// Dial connects to a port of a started machine.
type Dial func(ctx context.Context, id bourse.MachineID, port uint16) (net.Conn, error)

// Checks runs the checks of one worker.
type Checks struct {
	state    *state.State
	dial     Dial
	failures quiet.Line
	running  map[bourse.MachineID]watch // of Run's goroutine

	probers atomic.Int64
	wake    chan struct{} // holds a token when changed is not empty

	mu      sync.Mutex
	changed map[bourse.MachineID]struct{} // guarded by mu
}

// watch is what runs for one start of a machine.
type watch struct {
	boot    int
	version bourse.InstanceID
	stop    context.CancelFunc
}

// New makes the checks of a worker, which follow its machines. It starts nothing.
func New(s *state.State, dial Dial) *Checks {
	c := &Checks{
		state: s, dial: dial, running: map[bourse.MachineID]watch{},
		wake: make(chan struct{}, 1), changed: map[bourse.MachineID]struct{}{},
	}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			c.note(id)
		}
	})
	return c
}

func (c *Checks) note(id bourse.MachineID) {
	c.mu.Lock()
	c.changed[id] = struct{}{}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Checks) take() map[bourse.MachineID]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.changed
	c.changed = map[bourse.MachineID]struct{}{}
	return out
}

// Run checks the machines until ctx ends. It is called once, when the worker has
// recovered.
func (c *Checks) Run(ctx context.Context) error {
	err := c.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			c.note(m.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			state.Rest(ctx, gather)
		}
		for id := range c.take() {
			if err := c.look(ctx, id); err != nil {
				return err
			}
		}
	}
}

// look makes what runs for a machine what its record asks for.
func (c *Checks) look(ctx context.Context, id bourse.MachineID) error {
	var m bourse.Machine
	err := c.state.Store.View(func(tx *store.Tx) error {
		var err error
		m, err = tx.Machine(id)
		return err
	})
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	now, runs := c.running[id]
	wanted := err == nil && m.State == bourse.StateStarted && m.Config.ImageKind() != bourse.PollerImage
	if runs && wanted && now.boot == m.Boot.Number && now.version == m.Instance {
		return nil
	}
	if runs {
		now.stop()
		delete(c.running, id)
	}
	if !wanted {
		return nil
	}
	list, err := check.Of(&m.Config)
	if err != nil || len(list) == 0 {
		return nil //nolint:nilerr // of a release that took what cannot be checked; its statuses say nothing either
	}
	ctx, stop := context.WithCancel(ctx)
	c.running[id] = watch{boot: m.Boot.Number, version: m.Instance, stop: stop}
	for i := range list {
		p := &prober{Checks: c, machine: id, boot: m.Boot.Number, check: list[i], last: known(&m, list[i].Name)}
		p.check.Named = p.check.Port
		p.check.Port = portOf(&m, p.check.Port)
		c.probers.Add(1)
		c.state.Go(func(context.Context) {
			defer c.probers.Add(-1)
			p.run(ctx)
		})
	}
	return nil
}

// portOf returns where a check of the machine knocks that names a port, or none: what a
// service names is where its requests go, which on the host's network is $PORT.
func portOf(m *bourse.Machine, port int) int {
	services, err := service.Of(&m.Config)
	if err != nil || port != 0 && !slices.ContainsFunc(services, func(s service.Service) bool { return s.InternalPort == port }) {
		return port
	}
	own, err := admit.PortOf(m, port)
	if err != nil {
		return 0 // the probe says that there is none
	}
	return own
}

// Running returns how many checks are being done, of all machines.
func (c *Checks) Running() int { return int(c.probers.Load()) }

// known returns what is recorded of a check of the machine's present start, ""
// for nothing.
func known(m *bourse.Machine, name string) bourse.CheckState {
	if m.Checks == nil || m.Checks.Boot != m.Boot.Number {
		return ""
	}
	for _, s := range m.Checks.Results {
		if s.Name == name {
			return s.Status
		}
	}
	return ""
}

// prober does one check of one start of a machine.
type prober struct {
	*Checks
	machine bourse.MachineID
	boot    int
	check   check.Check
	last    bourse.CheckState // that is recorded; "" for none
}

func (p *prober) run(ctx context.Context) {
	adopted, passedOnce := p.last != "", false
	begin, wait := time.Now(), time.Duration(0)
	if adopted { // the daemon has restarted: all machines' checks begin now
		wait = rand.N(p.check.Interval)
	}
	for {
		state.Rest(ctx, wait)
		passed, output := p.check.Probe(ctx, func(ctx context.Context, port uint16) (net.Conn, error) {
			return p.dial(ctx, p.machine, port)
		})
		if ctx.Err() != nil {
			return
		}
		now := bourse.CheckCritical
		if passed {
			now, passedOnce = bourse.CheckPassing, true
		}
		excused := !passed && p.last == "" && time.Since(begin) < p.check.Grace
		if now != p.last && !excused {
			p.record(ctx, now, output)
		}
		wait = p.check.Interval
		if !adopted && !passedOnce {
			wait = min(max(soonest, time.Since(begin)/sooner), p.check.Interval)
		}
	}
}

// record writes the check's status; one that cannot be written is tried again
// after the next probe.
func (p *prober) record(ctx context.Context, now bourse.CheckState, output string) {
	status := bourse.CheckStatus{Name: p.check.Name, Status: now, Output: output, UpdatedAt: time.Now().UTC()}
	err := p.state.Commit(ctx, p.machine, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, p.machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateStarted || m.Boot.Number != p.boot {
				return false, nil, nil
			}
			m.Checks = with(m.Checks, p.boot, status)
			return true, nil, nil
		})
		return err
	})
	switch {
	case err == nil:
		p.last = now
	case ctx.Err() == nil && bourse.CodeOf(err) != bourse.CodeNotFound:
		if kept, ok := p.failures.Due(); ok {
			p.state.Log.Warn("record of a health check failed", "machine", p.machine, "check", p.check.Name, "err", err, "not_logged", kept)
		}
	}
}

// with returns results with one status changed. r is not.
func with(r *bourse.CheckResults, boot int, s bourse.CheckStatus) *bourse.CheckResults {
	out := &bourse.CheckResults{Boot: boot}
	if r != nil && r.Boot == boot {
		out.Results = slices.Clone(r.Results)
	}
	if i := slices.IndexFunc(out.Results, func(o bourse.CheckStatus) bool { return o.Name == s.Name }); i >= 0 {
		out.Results[i] = s
		return out
	}
	out.Results = append(out.Results, s)
	return out
}
