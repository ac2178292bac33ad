package watch

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

const (
	scheduleBatchDelay = time.Second // how long to wait for more changes to a machine
	scheduleRetry      = time.Minute // delay between attempts to start a machine that is due
)

// StartAt starts a machine. In the transaction that records the start, it first calls check, which
// may prevent the start by returning an error. It then calls write, which may change the machine
// and return additional events.
type StartAt func(ctx context.Context, id bourse.MachineID, check func(*bourse.Machine) error, write func(*bourse.Machine) []bourse.Event) error

// Schedules starts one worker's machines at the times in their configs.
type Schedules struct {
	*follower
	state    *state.State
	start    StartAt
	failures quiet.Line
	due      map[bourse.MachineID]time.Time // when each machine is due; used only by Run's goroutine, like waits
	waits    map[bourse.MachineID]time.Time // due times that were delayed once because the machine was still running
}

// NewSchedules returns the Schedules of a worker's machines. It does nothing until Run is called.
func NewSchedules(s *state.State, start StartAt) *Schedules {
	return &Schedules{follower: follow(s), state: s, start: start, due: map[bourse.MachineID]time.Time{}, waits: map[bourse.MachineID]time.Time{}}
}

// Run starts machines when they are due, until ctx is done. It must be called once, after
// the worker has recovered.
func (c *Schedules) Run(ctx context.Context) error {
	if err := c.noteAll(c.state); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			state.Sleep(ctx, scheduleBatchDelay)
		case <-timer.C:
		}
		for id := range c.take() {
			c.try(ctx, id, c.look)
		}
		now := time.Now()
		next := now.Add(24 * time.Hour) // a change to a machine wakes Run before this time
		for id, at := range c.due {
			if !at.After(now) {
				at = now.Add(scheduleRetry) // if the start succeeds, the machine's record changes, and look sets the next time
				c.due[id] = at
				c.try(ctx, id, c.startDue)
			}
			if at.Before(next) {
				next = at
			}
		}
		timer.Reset(time.Until(next))
	}
}

// try calls do for a machine. If do returns an error, try schedules another attempt after
// scheduleRetry.
func (c *Schedules) try(ctx context.Context, id bourse.MachineID, do func(context.Context, bourse.MachineID) error) {
	err := do(ctx, id)
	if err == nil || ctx.Err() != nil || bourse.CodeOf(err) == bourse.CodeNotFound {
		return
	}
	c.due[id] = time.Now().Add(scheduleRetry)
	if kept, ok := c.failures.Due(); ok {
		c.state.Log.Warn("scheduled start of machine failed, will retry", "machine", id, "err", err, "not_logged", kept)
	}
}

// errNotDue is returned if a machine is no longer due, because its record has changed since it was
// read.
var errNotDue = errors.New("not due")

// look determines from a machine's config when the machine is due to start, and records the time.
func (c *Schedules) look(ctx context.Context, id bourse.MachineID) error {
	delete(c.due, id)
	m, err := c.read(id)
	if err != nil {
		delete(c.waits, id)
		return err
	}
	every := wanted(&m)
	if every == "" && m.Due == nil {
		return nil
	}
	if every == "" || m.Due == nil || m.Due.Every != every {
		err := c.state.Commit(ctx, id, func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, id, func(now *bourse.Machine) (bool, []bourse.Event, error) {
				if every = wanted(now); every == "" {
					now.Due = nil
				} else if now.Due == nil || now.Due.Every != every {
					now.Due = &bourse.Due{Every: every, At: every.Next(now.CreatedAt, id, now.Instance.Time())} // the first scheduled time after this config was set
				}
				m = *now
				return true, nil, nil
			})
			return err
		})
		if err != nil || m.Due == nil {
			return err
		}
	}
	c.due[id] = m.Due.At
	return nil
}

// wanted returns the schedule of a machine, or "" if it has none or is being destroyed.
func wanted(m *bourse.Machine) bourse.Schedule {
	if m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed {
		return ""
	}
	return m.Config.Schedule
}

// startDue starts a machine that is due. If the machine is still running, startDue postpones the
// start once, by scheduleRetry. If the machine is still running then, startDue skips this start.
func (c *Schedules) startDue(ctx context.Context, id bourse.MachineID) error {
	m, err := c.read(id)
	if err != nil || m.Due == nil || m.Due.At.After(time.Now()) {
		return err
	}
	due := *m.Due
	next := bourse.Due{Every: due.Every, At: due.Every.Next(m.CreatedAt, id, time.Now())}
	check := func(m *bourse.Machine) error {
		if m.Due == nil || *m.Due != due || wanted(m) != due.Every {
			return errNotDue
		}
		return nil
	}
	switch {
	case !startable(&m) && !c.waits[id].Equal(due.At):
		c.waits[id] = due.At // the program may have exited a moment ago, so try again later
		return nil
	case startable(&m):
		err = c.start(ctx, id, check, func(m *bourse.Machine) []bourse.Event {
			m.Due = &next
			return []bourse.Event{{Type: bourse.EventStart, State: bourse.StateStarting, Source: bourse.SourceClock}}
		})
	default:
		err = c.state.Commit(ctx, id, func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
				if startable(m) {
					return false, nil, errNotDue // the machine has just stopped, so try again
				}
				if err := check(m); err != nil {
					return false, nil, err
				}
				m.Due = &next
				return true, nil, nil
			})
			return err
		})
	}
	delete(c.waits, id)
	if errors.Is(err, errNotDue) {
		c.note(id)
		return nil
	}
	return err
}

// startable reports whether a schedule may start the machine in its current state.
func startable(m *bourse.Machine) bool {
	return (m.State == bourse.StateStopped || m.State == bourse.StateFailed) && m.Boot.Number > 0
}

func (c *Schedules) read(id bourse.MachineID) (m bourse.Machine, err error) {
	err = c.state.Store.View(func(tx *store.Tx) error {
		m, err = tx.Machine(id)
		return err
	})
	return m, err
}
