package watch

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/workload"
)

const (
	// checksBatchDelay is how long the watcher waits for more changes before it reads the changed machines. A machine's
	// start causes several changes within milliseconds.
	checksBatchDelay = 20 * time.Millisecond
	// Until a check has passed once, it probes more often than its interval requires, so that the worker soon notices
	// that the machine is ready. The delay between probes is 1/probeDivisor of the time since the first one, but at
	// least minProbeDelay.
	minProbeDelay = 100 * time.Millisecond
	probeDivisor  = 8
)

// Dial connects to a port of a started machine.
type Dial func(ctx context.Context, id bourse.MachineID, port uint16) (net.Conn, error)

// Checks runs the health checks of one worker's machines.
type Checks struct {
	*follower
	state    *state.State
	dial     Dial
	failures quiet.Line
	running  map[bourse.MachineID]checkRun // used only by Run's goroutine

	probers atomic.Int64
}

// checkRun contains the boot and the version for which a machine's checks are running, and a function that stops them.
type checkRun struct {
	boot    int
	version bourse.InstanceID
	stop    context.CancelFunc
}

// NewChecks returns the Checks of a worker's machines. It does nothing until Run is called.
func NewChecks(s *state.State, dial Dial) *Checks {
	return &Checks{follower: follow(s), state: s, dial: dial, running: map[bourse.MachineID]checkRun{}}
}

// Run checks the machines until ctx is done. It must be called once, after the worker has
// recovered.
func (c *Checks) Run(ctx context.Context) error {
	if err := c.noteAll(c.state); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			state.Sleep(ctx, checksBatchDelay)
		}
		for id := range c.take() {
			if err := c.look(ctx, id); err != nil {
				return err
			}
		}
	}
}

// look starts or stops a machine's checks according to its record.
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
	list := workload.Checks(&m.Config)
	if len(list) == 0 {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	c.running[id] = checkRun{boot: m.Boot.Number, version: m.Instance, stop: stop}
	for i := range list {
		p := &prober{Checks: c, machine: id, boot: m.Boot.Number, check: list[i], last: knownStatus(&m, list[i].Name)}
		p.check.ConfiguredPort = p.check.Port
		p.check.Port = portOf(&m, p.check.Port)
		c.probers.Add(1)
		c.state.Go(func(context.Context) {
			defer c.probers.Add(-1)
			p.run(ctx)
		})
	}
	return nil
}

// portOf returns the port that a check of m connects to, or 0 if m has no such port. port is the port in the check's
// config. If it is the internal port of one of m's services, portOf returns the port on which m receives that service's
// requests. That is $PORT if m uses the host's network.
func portOf(m *bourse.Machine, port int) int {
	if port != 0 && !slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool { return s.InternalPort == port }) {
		return port
	}
	own, err := admit.PortOf(m, port)
	if err != nil {
		return 0 // the probe then reports that there is no port
	}
	return own
}

// Running returns the number of running checks of all machines.
func (c *Checks) Running() int { return int(c.probers.Load()) }

// knownStatus returns the status of a check that was recorded since m's last start, or "" if none was.
func knownStatus(m *bourse.Machine, name string) bourse.CheckState {
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

// prober executes one check during one boot of a machine.
type prober struct {
	*Checks
	machine bourse.MachineID
	boot    int
	check   workload.Check
	last    bourse.CheckState // recorded status; "" for none
}

func (p *prober) run(ctx context.Context) {
	adopted, passedOnce := p.last != "", false
	begin, wait := time.Now(), time.Duration(0)
	if adopted { // the daemon has restarted, so wait for a random time, to avoid probing all machines at once
		wait = rand.N(p.check.Interval)
	}
	for {
		state.Sleep(ctx, wait)
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
			wait = min(max(minProbeDelay, time.Since(begin)/probeDivisor), p.check.Interval)
		}
	}
}

// record writes the check's status to the machine's record. If that fails, the status is written again after the next
// probe.
func (p *prober) record(ctx context.Context, now bourse.CheckState, output string) {
	status := bourse.CheckStatus{Name: p.check.Name, Status: now, Output: output, UpdatedAt: time.Now().UTC()}
	err := p.state.Commit(ctx, p.machine, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, p.machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateStarted || m.Boot.Number != p.boot {
				return false, nil, nil
			}
			m.Checks = withStatus(m.Checks, p.boot, status)
			return true, nil, nil
		})
		return err
	})
	switch {
	case err == nil:
		p.last = now
	case ctx.Err() == nil && bourse.CodeOf(err) != bourse.CodeNotFound:
		if kept, ok := p.failures.Due(); ok {
			p.state.Log.Warn("record result of health check failed", "machine", p.machine, "check", p.check.Name, "err", err, "not_logged", kept)
		}
	}
}

// withStatus returns a copy of r that contains s, instead of the earlier status of the same check. If r is not from the
// given boot, the result contains only s.
func withStatus(r *bourse.CheckResults, boot int, s bourse.CheckStatus) *bourse.CheckResults {
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
