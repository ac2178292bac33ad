package broker_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// worker is a worker whose programs are records.
type worker struct {
	self bourse.Member

	mu        sync.Mutex
	machines  map[bourse.MachineID]*bourse.Machine
	apps      map[bourse.AppName]bourse.App
	decisions map[bourse.OrderID]bourse.Decision
	changed   chan struct{} // closed at each change
	calls     map[string]int
	acts      []fabric.Act
	execs     []fabric.ExecRequest
	logs      []fabric.LogLine
	runs      []fabric.Run
	volumes   map[bourse.VolumeID]*bourse.Volume
	images    []bourse.Image
	holds     map[bourse.ReservationKey][]bourse.Hold
	touched   time.Time // the latest version given

	full bool
	fail func(call string) error // before a call has an effect
	lose func(call string) error // after it
}

func newWorker(self bourse.Member) *worker {
	return &worker{
		self: self, machines: map[bourse.MachineID]*bourse.Machine{}, apps: map[bourse.AppName]bourse.App{},
		holds: map[bourse.ReservationKey][]bourse.Hold{}, volumes: map[bourse.VolumeID]*bourse.Volume{}, decisions: map[bourse.OrderID]bourse.Decision{}, changed: make(chan struct{}), calls: map[string]int{},
	}
}

// silence makes every call end in err.
func (w *worker) silence(err error) { w.set(func(string) error { return err }) }

func (w *worker) set(fail func(string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

func (w *worker) add(order bourse.Order, state bourse.State) bourse.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UTC()
	if order.Name == "" {
		order.Name = "made-up-1234"
	}
	m := &bourse.Machine{
		ID: bourse.NewMachineID(w.self.Tag), Name: order.Name, App: order.App.Name, AppID: order.App.ID, Worker: w.self.ID, Region: w.self.Region,
		Order: order.ID, Instance: bourse.NewInstanceID(), Config: order.Config, Cordoned: order.Cordoned,
		CreatedAt: now, UpdatedAt: now, Boot: bourse.Boot{Number: 1, PID: 4711, Port: 30000},
	}
	if order.LeaseTTL > 0 {
		m.Lease = &bourse.Lease{Nonce: "0123456789ab", Owner: order.LeaseOwner, ExpiresAt: now.Add(time.Duration(order.LeaseTTL) * time.Second)}
	}
	if order.App.ID != "" {
		w.apps[order.App.Name] = order.App
	}
	w.machines[m.ID] = m
	w.enter(m, bourse.EventLaunch, bourse.StateCreated, bourse.SourceUser)
	if state != bourse.StateCreated {
		w.enter(m, bourse.EventStart, state, bourse.SourceWorker)
	}
	return *m
}

// enter puts m into a state and tells who waits. The caller holds the lock.
func (w *worker) enter(m *bourse.Machine, event bourse.EventType, state bourse.State, source bourse.Source) {
	var seed [10]byte
	seed[9] = byte(len(m.LastEvents))
	e := bourse.Event{ID: bourse.EventIDAt(time.Now(), seed), Type: event, From: m.State, State: state, Source: source, At: time.Now(), Instance: m.Instance}
	if event == bourse.EventExit {
		e.Exit = &bourse.ExitEvent{Exit: bourse.Exit{Code: -1, Signal: 2, At: time.Now()}, RequestedStop: true}
	}
	m.State = state
	w.touch(m)
	m.LastEvents = append([]bourse.Event{e}, m.LastEvents...)
	close(w.changed)
	w.changed = make(chan struct{})
}

// touch makes m another version, also where the clock stands still. The caller
// holds the lock.
func (w *worker) touch(m *bourse.Machine) {
	m.UpdatedAt = time.Now().UTC()
	if !m.UpdatedAt.After(w.touched) {
		m.UpdatedAt = w.touched.Add(1)
	}
	w.touched = m.UpdatedAt
}

func (w *worker) filled(id bourse.OrderID) (bourse.Machine, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.Order == id {
			return *m, true
		}
	}
	return bourse.Machine{}, false
}

func (w *worker) called(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[name]
}

// on makes one call of the worker to, with its failures before and after.
func on[T any](ctx context.Context, c *cluster, to bourse.Member, name string, do func(*worker) (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, ctx.Err()
	}
	w := c.workers[to.ID]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[name]++
	if w.fail != nil {
		if err := w.fail(name); err != nil {
			return zero, err
		}
	}
	got, err := do(w)
	if w.lose != nil {
		if lost := w.lose(name); lost != nil {
			return zero, lost
		}
	}
	return got, err
}

func (w *worker) find(id bourse.MachineID) (*bourse.Machine, error) {
	m, ok := w.machines[id]
	if !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no machine %s", id)
	}
	return m, nil
}

func (c *cluster) Machines(ctx context.Context, to bourse.Member, q fabric.MachinesQuery) ([]bourse.Machine, error) {
	return on(ctx, c, to, "machines", func(w *worker) ([]bourse.Machine, error) {
		var out []bourse.Machine
		for _, m := range w.machines {
			if (q.App == "" || q.App == m.App) && (q.Name == "" || q.Name == m.Name) && (q.Deleted || m.State != bourse.StateDestroyed) {
				out = append(out, *m)
			}
		}
		return out, nil
	})
}

func (c *cluster) Machine(ctx context.Context, to bourse.Member, id bourse.MachineID) (bourse.Machine, error) {
	return on(ctx, c, to, "machine", func(w *worker) (bourse.Machine, error) {
		m, err := w.find(id)
		if err != nil {
			return bourse.Machine{}, err
		}
		return *m, nil
	})
}

func (c *cluster) Events(ctx context.Context, to bourse.Member, id bourse.MachineID, limit int) ([]bourse.Event, error) {
	return on(ctx, c, to, "events", func(w *worker) ([]bourse.Event, error) {
		m, err := w.find(id)
		if err != nil {
			return nil, err
		}
		return m.LastEvents[:min(limit, len(m.LastEvents))], nil
	})
}

func (c *cluster) Lease(ctx context.Context, to bourse.Member, id bourse.MachineID, req fabric.LeaseRequest) (bourse.Lease, error) {
	return on(ctx, c, to, "lease", func(w *worker) (bourse.Lease, error) {
		m, err := w.find(id)
		switch {
		case err != nil:
			return bourse.Lease{}, err
		case m.Lease.Expired(time.Now()):
			m.Lease = &bourse.Lease{Nonce: "ba9876543210", Owner: req.Owner, Description: req.Description}
		case m.Lease.Nonce != req.Nonce:
			return bourse.Lease{}, bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s", id, m.Lease.Owner)
		}
		m.Lease.ExpiresAt = time.Now().Add(req.TTL)
		w.touch(m)
		return *m.Lease, nil
	})
}

func (c *cluster) Release(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "release", func(w *worker, m *bourse.Machine) error {
		if m.Lease.Expired(time.Now()) {
			return bourse.Errorf(bourse.CodeNotFound, "no lease")
		}
		m.Lease = nil
		w.touch(m)
		return nil
	})
}

func (c *cluster) Metadata(ctx context.Context, to bourse.Member, id bourse.MachineID, change fabric.MetadataRequest) (bourse.Machine, error) {
	return on(ctx, c, to, "metadata", func(w *worker) (bourse.Machine, error) {
		m, err := w.find(id)
		if err != nil {
			return bourse.Machine{}, err
		}
		if change.Instance != "" && change.Instance != m.Instance {
			return bourse.Machine{}, bourse.Errorf(bourse.CodeFailedPrecondition, "the machine has moved on")
		}
		set := map[string]string{}
		maps.Copy(set, m.Config.Metadata)
		for k, v := range change.Set {
			if v == nil || *v == "" {
				delete(set, k)
			} else {
				set[k] = *v
			}
		}
		m.Config.Metadata = set
		w.touch(m)
		return *m, nil
	})
}

func (c *cluster) Wait(ctx context.Context, to bourse.Member, id bourse.MachineID, q fabric.WaitQuery) (fabric.WaitReply, error) {
	deadline := time.NewTimer(q.Timeout)
	defer deadline.Stop()
	for {
		var changed chan struct{}
		got, err := on(ctx, c, to, "wait", func(w *worker) (*fabric.WaitReply, error) {
			changed = w.changed
			m, err := w.find(id)
			if err != nil {
				return nil, err
			}
			if q.Instance != "" && q.Instance != m.Instance {
				return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version %s is currently replaced", q.Instance)
			}
			if m.LastEvents[0].ID == q.After {
				return nil, nil
			}
			if slices.Contains(q.States, m.State) {
				now := *m
				return &fabric.WaitReply{State: m.State, Instance: m.Instance, Event: m.LastEvents[0].ID, Machine: &now}, nil
			}
			if m.State == bourse.StateDestroyed {
				return nil, bourse.Errorf(bourse.CodeNotFound, "destroyed")
			}
			return nil, nil
		})
		if err != nil {
			return fabric.WaitReply{}, err
		}
		if got != nil {
			return *got, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return fabric.WaitReply{}, bourse.Errorf(bourse.CodeTimeout, "waited long enough")
		case <-ctx.Done():
			return fabric.WaitReply{}, errLost
		}
	}
}

func (c *cluster) Logs(ctx context.Context, to bourse.Member, id bourse.MachineID, q fabric.LogsQuery, line func(fabric.LogLine) error) error {
	lines, err := on(ctx, c, to, "logs", func(w *worker) ([]fabric.LogLine, error) {
		_, err := w.find(id)
		return w.logs, err
	})
	if err != nil {
		return err
	}
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	for _, l := range lines {
		if l.Stream == "broken" {
			return errLost
		}
		if l.At.Before(q.Since) {
			continue
		}
		if err := line(l); err != nil {
			return err
		}
	}
	if q.Follow {
		<-ctx.Done()
		return errLost
	}
	return nil
}

func (c *cluster) Apps(ctx context.Context, to bourse.Member) ([]bourse.App, error) {
	return on(ctx, c, to, "apps", func(w *worker) ([]bourse.App, error) {
		var out []bourse.App
		for _, a := range w.apps {
			out = append(out, a)
		}
		return out, nil
	})
}

func (c *cluster) PutApp(ctx context.Context, to bourse.Member, app bourse.App) (bourse.App, error) {
	return on(ctx, c, to, "put app", func(w *worker) (bourse.App, error) {
		if old, ok := w.apps[app.Name]; ok {
			app = old.Merge(app)
		}
		w.apps[app.Name] = app
		return app, nil
	})
}

func (c *cluster) Order(ctx context.Context, to bourse.Member, id bourse.OrderID) (bourse.Decision, error) {
	return on(ctx, c, to, "order", func(w *worker) (bourse.Decision, error) {
		d, ok := w.decisions[id]
		if !ok {
			return d, bourse.Errorf(bourse.CodeNotFound, "order not found")
		}
		return d, nil
	})
}

func (c *cluster) Facts(ctx context.Context, to bourse.Member) (bourse.Facts, error) {
	return on(ctx, c, to, "facts", func(w *worker) (bourse.Facts, error) {
		return bourse.Facts{Worker: w.self.ID, Region: w.self.Region, Version: "fake", Drivers: []string{"process"}}, nil
	})
}

func (c *cluster) Runs(ctx context.Context, to bourse.Member, ended bool) ([]fabric.Run, error) {
	return on(ctx, c, to, "runs", func(w *worker) ([]fabric.Run, error) {
		return slices.DeleteFunc(slices.Clone(w.runs), func(r fabric.Run) bool { return r.Status == "done" && !ended }), nil
	})
}

func (c *cluster) changeRun(ctx context.Context, to bourse.Member, id, status string) (fabric.Run, error) {
	return on(ctx, c, to, "run", func(w *worker) (fabric.Run, error) {
		for i := range w.runs {
			if w.runs[i].ID == id {
				w.runs[i].Status = status
				return w.runs[i], nil
			}
		}
		return fabric.Run{}, bourse.Errorf(bourse.CodeNotFound, "no run")
	})
}

func (c *cluster) RunRetry(ctx context.Context, to bourse.Member, run string) (fabric.Run, error) {
	return c.changeRun(ctx, to, run, "running")
}

func (c *cluster) RunSkip(ctx context.Context, to bourse.Member, run string) (fabric.Run, error) {
	return c.changeRun(ctx, to, run, "skipped")
}

func (c *cluster) RunCancel(ctx context.Context, to bourse.Member, run string) (fabric.Run, error) {
	return c.changeRun(ctx, to, run, "canceled")
}
