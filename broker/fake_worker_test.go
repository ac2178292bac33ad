package broker_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/codec"
)

// worker is an in-memory worker. Its machines run no programs; they exist only as records.
type worker struct {
	self bourse.Member

	mu        sync.Mutex
	machines  map[bourse.MachineID]*bourse.Machine
	apps      map[bourse.AppName]bourse.App
	decisions map[bourse.OrderID]bourse.Decision
	changed   chan struct{} // closed and replaced at each change
	mux       http.ServeMux
	calls     map[string]int
	acts      []fabric.MachineAction
	execs     []fabric.ExecRequest
	updates   []fabric.UpdateRequest
	logs      []fabric.LogLine
	runs      []fabric.Run
	cordon    *bourse.Cordon
	volumes   map[bourse.VolumeID]*bourse.Volume
	images    []bourse.Image
	holds     map[bourse.ReservationKey][]bourse.Hold
	touched   time.Time // time of the latest version of any machine

	full  bool
	room  int64                   // number of additional machines that fit, regardless of size
	plain bool                    // the worker cannot encrypt volumes
	fail  func(call string) error // called before a call has an effect; an error fails the call
	lose  func(call string) error // called after a call has had its effect; an error replaces the reply
}

func newWorker(self bourse.Member) *worker {
	w := &worker{
		self: self, machines: map[bourse.MachineID]*bourse.Machine{}, apps: map[bourse.AppName]bourse.App{},
		holds: map[bourse.ReservationKey][]bourse.Hold{}, volumes: map[bourse.VolumeID]*bourse.Volume{}, decisions: map[bourse.OrderID]bourse.Decision{}, changed: make(chan struct{}), calls: map[string]int{},
	}
	w.handleMachines()
	w.handleActs()
	w.handleVolumes()
	w.handleImages()
	w.handleReservations()
	w.handleOthers()
	w.mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) { // serves verbs that only the test of that verb implements
		fabric.WriteFailure(rw, bourse.Errorf(bourse.CodeFailedPrecondition, "no test worker serves %s", r.URL.Path))
	})
	return w
}

// silence makes every call to the worker fail with err.
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

// enter changes m's state, adds an event and notifies waiting callers. The caller holds the lock.
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

// touch gives m a new version, even if the clock has not advanced. The caller holds the lock.
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

// Ask, Send and Call implement fabric.Fabric. A worker of the cluster can be made to fail before or
// after a call has an effect.
func (c *cluster) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	fabric.AskAll(ctx, c.Send, to, order, answer)
}

func (c *cluster) Send(ctx context.Context, to bourse.Member, m *fabric.Message) (fabric.Answer, error) {
	w := c.workers[to.ID]
	if err := w.before(ctx, m.URI); err != nil {
		return fabric.Answer{}, err
	}
	a, err := fabrictest.Serving(w).Send(ctx, to, m)
	if lost := w.after(m.URI); lost != nil {
		return a, lost
	}
	return a, err
}

func (c *cluster) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	w := c.workers[to.ID]
	if err := w.before(ctx, req.URL.Path); err != nil {
		return nil, err
	}
	resp, err := fabrictest.Serving(w).Call(ctx, to, req)
	if lost := w.after(req.URL.Path); lost != nil {
		if err == nil {
			resp.Body.Close()
		}
		return nil, lost
	}
	return resp, err
}

// before counts a call. If the call must fail, before returns the error; otherwise nil.
func (w *worker) before(ctx context.Context, path string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	name := strings.TrimPrefix(path, "/worker/")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[name]++
	if w.fail != nil {
		return w.fail(name)
	}
	return nil
}

func (w *worker) after(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lose == nil {
		return nil
	}
	return w.lose(strings.TrimPrefix(path, "/worker/"))
}

// ServeHTTP serves the worker's verbs.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// handle serves a verb under the worker's lock.
func handle[Req, Rep any](w *worker, v *fabric.Verb[Req, Rep], do func(Req) (Rep, error)) {
	v.Handle(&w.mux, func(_ context.Context, req Req) (Rep, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return do(req)
	})
}

func (w *worker) find(id bourse.MachineID) (*bourse.Machine, error) {
	m, ok := w.machines[id]
	if !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no machine %s", id)
	}
	return m, nil
}

func (w *worker) handleMachines() {
	handle(w, &fabric.MachineList, func(q fabric.MachinesQuery) ([]bourse.Machine, error) {
		var out []bourse.Machine
		for _, m := range w.machines {
			if (q.App == "" || q.App == m.App) && (q.Name == "" || q.Name == m.Name) && (q.Deleted || m.State != bourse.StateDestroyed) {
				out = append(out, *m)
			}
		}
		return out, nil
	})
	handle(w, &fabric.MachineShow, func(id bourse.MachineID) (bourse.Machine, error) {
		m, err := w.find(id)
		if err != nil {
			return bourse.Machine{}, err
		}
		return *m, nil
	})
	handle(w, &fabric.MachineEvents, func(q fabric.EventsQuery) ([]bourse.Event, error) {
		m, err := w.find(q.Machine)
		if err != nil {
			return nil, err
		}
		return m.LastEvents[:min(q.Limit, len(m.LastEvents))], nil
	})
	handle(w, &fabric.MachineLease, w.lease)
	handle(w, &fabric.MachineMetadata, w.metadata)
	fabric.MachineWait.Handle(&w.mux, w.wait)
	fabric.MachineLogs.Handle(&w.mux, w.follow)
	handle(w, &fabric.MachineUsage, func(id bourse.MachineID) (fabric.Usage, error) {
		if _, err := w.find(id); err != nil {
			return fabric.Usage{}, err
		}
		return fabric.Usage{At: time.Unix(7, 0), CPU: 1500 * time.Millisecond, Throttled: -1, Memory: 1 << 20, PIDs: 3, CPUs: 0.5, MayCPUs: 2, ReadByte: -1}, nil
	})
}

func (w *worker) lease(req fabric.LeaseRequest) (bourse.Lease, error) {
	m, err := w.find(req.Machine)
	switch {
	case err != nil:
		return bourse.Lease{}, err
	case m.Lease.Expired(time.Now()):
		m.Lease = &bourse.Lease{Nonce: "ba9876543210", Owner: req.Owner, Description: req.Description}
	case m.Lease.Nonce != req.Nonce:
		return bourse.Lease{}, bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s", req.Machine, m.Lease.Owner)
	}
	m.Lease.ExpiresAt = time.Now().Add(req.TTL)
	w.touch(m)
	return *m.Lease, nil
}

func (w *worker) metadata(change fabric.MetadataRequest) (bourse.Machine, error) {
	m, err := w.find(change.Machine)
	if err != nil {
		return bourse.Machine{}, err
	}
	if change.Instance != "" && change.Instance != m.Instance {
		return bourse.Machine{}, bourse.Errorf(bourse.CodeFailedPrecondition, "the machine has changed since")
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
}

func (w *worker) wait(ctx context.Context, q fabric.WaitQuery) (fabric.WaitReply, error) {
	deadline := time.NewTimer(time.Duration(q.Timeout))
	defer deadline.Stop()
	for {
		got, changed, err := w.waited(q)
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

// waited returns the result of a wait, or a channel that is closed at the next change.
func (w *worker) waited(q fabric.WaitQuery) (*fabric.WaitReply, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.find(q.Machine)
	switch {
	case err != nil:
		return nil, nil, err
	case q.Instance != "" && q.Instance != m.Instance:
		return nil, nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version %s is currently replaced", q.Instance)
	case m.LastEvents[0].ID == q.After:
		return nil, w.changed, nil
	case slices.Contains(q.States, m.State):
		now := *m
		return &fabric.WaitReply{State: m.State, Instance: m.Instance, Event: m.LastEvents[0].ID, Machine: &now}, nil, nil
	case m.State == bourse.StateDestroyed:
		return nil, nil, bourse.Errorf(bourse.CodeNotFound, "destroyed")
	}
	return nil, w.changed, nil
}

func (w *worker) follow(ctx context.Context, q fabric.LogsQuery, out *codec.Writer) error {
	w.mu.Lock()
	_, err := w.find(q.Machine)
	lines := slices.Clone(w.logs)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(lines, func(l fabric.LogLine) bool { return q.After != "" && l.Position == q.After }); i >= 0 {
		lines = lines[i+1:]
	}
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	for _, l := range lines {
		if l.Stream == "broken" {
			panic(http.ErrAbortHandler)
		}
		if l.At.Before(q.Since) {
			continue
		}
		if err := out.Write(l); err != nil {
			return err
		}
	}
	if q.Follow {
		out.Begin()
		<-ctx.Done()
		return errLost
	}
	return nil
}

func (w *worker) handleOthers() {
	handle(w, &fabric.OrderQuote, func(bourse.Order) (bourse.Quote, error) {
		q := bourse.Quote{Worker: w.self.ID, Region: w.self.Region, Takes: bourse.Amounts{{Resource: "cpu", Amount: 10}}, Accounts: []bourse.Account{{Resource: "cpu", Total: 10*w.room + 15, Used: 10}}}
		return q, nil
	})
	handle(w, &fabric.AppList, func(bourse.AppName) ([]bourse.App, error) {
		return slices.Collect(maps.Values(w.apps)), nil
	})
	handle(w, &fabric.OrderShow, func(id bourse.OrderID) (bourse.Decision, error) {
		d, ok := w.decisions[id]
		if !ok {
			return d, bourse.Errorf(bourse.CodeNotFound, "order not found")
		}
		return d, nil
	})
	handle(w, &fabric.OrderPull, func(id bourse.OrderID) (bourse.Image, error) {
		return bourse.Image{Pull: &bourse.PullProgress{Status: "pulling " + string(id)}}, nil
	})
	handle(w, &fabric.WorkerFacts, func(struct{}) (bourse.Facts, error) {
		return w.facts(), nil
	})
	handle(w, &fabric.WorkerCordon, func(req fabric.CordonRequest) (bourse.Facts, error) {
		if w.cordon = nil; req.Cordon {
			w.cordon = &bourse.Cordon{By: req.By}
		}
		return w.facts(), nil
	})
	handle(w, &fabric.RunList, func(q fabric.RunsQuery) ([]fabric.Run, error) {
		return slices.DeleteFunc(slices.Clone(w.runs), func(r fabric.Run) bool { return r.Status == "done" && !q.Ended }), nil
	})
	for verb, status := range map[*fabric.Verb[string, fabric.Run]]string{&fabric.RunRetry: "running", &fabric.RunSkip: "skipped", &fabric.RunCancel: "canceled"} {
		handle(w, verb, func(id string) (fabric.Run, error) {
			for i := range w.runs {
				if w.runs[i].ID == id {
					w.runs[i].Status = status
					return w.runs[i], nil
				}
			}
			return fabric.Run{}, bourse.Errorf(bourse.CodeNotFound, "no run")
		})
	}
}

func (w *worker) facts() bourse.Facts {
	return bourse.Facts{Worker: w.self.ID, Region: w.self.Region, Version: "fake", Drivers: []string{"process"}, Cordon: w.cordon}
}
