package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// fault is a failure that is injected into a call.
type fault string

const (
	refused  fault = "refused"                // the call returns an error and does nothing
	lostDone fault = "no answer, done"        // the answer is lost after the call was executed
	lostNot  fault = "no answer, not done"    // the call is lost before it is executed
	silent   fault = "worker does not answer" // temporarily, starting with this call
	gone     fault = "worker is gone"         // from this call on
	stolen   fault = "lease taken"            // the lease ends early, and another client has taken it
	expired  fault = "lease expired"          // the lease ends early, and nobody has taken it
	jump     fault = "clock jumps"            // the cluster's clock is set an hour ahead
	back     fault = "clock goes back"        // the cluster's clock is set back an hour
	suspends fault = "client is suspended"    // for longer than a lease lasts, while another client changes all machines
	noImage  fault = "image is gone"          // the registry no longer has the image
	noRoom   fault = "no room"                // no worker has capacity left

	// The answer to an update is lost, and the update takes effect later.
	replaces fault = "no answer, being replaced"  // after two seconds, and the machine's state is replacing until then
	pulls    fault = "no answer, image is pulled" // after two minutes, and other updates are refused until then
	delayed  fault = "no answer, on its way"      // after two seconds; until then, the worker does not know of the update
)

// lands returns the delay after which an update with this fault takes effect, or 0 if the
// fault does not delay it.
func (f fault) lands() time.Duration {
	switch f {
	case replaces, delayed:
		return 2 * time.Second
	case pulls:
		return 2 * time.Minute
	default:
		return 0
	}
}

// suspended is the time for which a client is suspended.
const suspended = 20 * time.Second

// cluster is an in-memory fake of the API. It has one app, and a worker for each machine. Its proxies learn about
// changes with a small delay.
type cluster struct {
	tb testing.TB

	mu       sync.Mutex
	machines map[bourse.MachineID]*fakeMachine
	volumes  map[bourse.VolumeID]bool
	orders   map[bourse.OrderID]string
	reserved map[bourse.ReservationID]time.Time
	apart    bool // every worker already has a volume with the requested name
	room     int  // number of machines that may still be created; negative means any number
	next     int
	proxies  int
	releases []release.Status
	watchers map[int]func(Row)
	silent   map[bourse.MachineID]time.Time // time until which the machine's worker does not answer
	skew     time.Duration
	paused   time.Time                              // time until which the client is suspended
	others   map[bourse.MachineID]bourse.InstanceID // versions of machines that another client changed in the meantime

	calls  int // number of calls that change something
	inject func(n int, call string, id bourse.MachineID) fault
	seen   []string // names of the calls, in order
	wrong  []string // errors that the cluster has noticed
}

type fakeMachine struct {
	machinesapi.Machine
	nonce   string
	expires time.Time
	by      string
	seq     int
	heard   []time.Time // times of the machine's changes
	cordons time.Time   // time when the machine was cordoned
	pulling bool        // an update is waiting for its image
}

const hearsIn = 80 * time.Millisecond // delay until a proxy knows about a change

func newCluster(tb testing.TB, machines int) *cluster {
	c := &cluster{
		tb: tb, machines: map[bourse.MachineID]*fakeMachine{}, volumes: map[bourse.VolumeID]bool{}, orders: map[bourse.OrderID]string{},
		reserved: map[bourse.ReservationID]time.Time{}, room: -1, watchers: map[int]func(Row){}, silent: map[bourse.MachineID]time.Time{}, proxies: 2,
	}
	for range machines {
		c.add(config("v1"), false)
	}
	return c
}

func config(version string) *bourse.Config {
	return &bourse.Config{Image: bourse.ImageHost, Env: map[string]string{"VERSION": version}}
}

func (c *cluster) add(config *bourse.Config, hidden bool) *fakeMachine {
	c.next++
	id := bourse.MachineID(fmt.Sprintf("%06x%08x", c.next, c.next))
	m := &fakeMachine{}
	m.ID, m.State, m.Cordoned, m.Config, m.HostStatus = id, bourse.StateStarted, hidden, config, machinesapi.HostOK
	m.Worker, m.Starts, m.InstanceID = bourse.WorkerID("w"+string(id)), 1, bourse.NewInstanceID()
	c.machines[id] = m
	c.changed(m)
	return m
}

// changed records and publishes a change to a machine. The caller must hold mu.
func (c *cluster) changed(m *fakeMachine) {
	m.seq++
	m.heard = append(m.heard, time.Now())
	m.Checks = nil
	if m.State == bourse.StateStarted && m.Config.Env["CHECK"] != "" {
		m.Checks = []bourse.CheckStatus{{Name: "http", Status: bourse.CheckState(m.Config.Env["CHECK"])}}
	}
	for _, w := range c.watchers {
		w(rowOfMachine(m))
	}
}

func rowOfMachine(m *fakeMachine) Row {
	return Row{
		Machine: m.ID, Worker: m.Worker, State: m.State, Instance: m.InstanceID, Cordoned: m.Cordoned, Starts: m.Starts,
		Gone: m.State == bourse.StateDestroyed,
	}
}

func errOf(code bourse.Code) error { return bourse.Errorf(code, "injected: %s", code) }

// change simulates a call that changes something: it injects faults, and calls do.
func (c *cluster) change(ctx context.Context, call string, id bourse.MachineID, do func() error) error {
	began := time.Now()
	if err := sleep(ctx, 5*time.Millisecond); err != nil { // network latency
		return bourse.Errorf(bourse.CodeCanceled, "canceled")
	}
	defer c.pause()
	if until := c.pause(); began.Before(until) {
		return errOf(bourse.CodeTimeout) // a suspended client sends nothing and receives no answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.seen = append(c.seen, call)
	var f fault
	if c.inject != nil {
		f = c.inject(c.calls, call, id)
	}
	switch f {
	case refused:
		return errOf(bourse.CodeFailedPrecondition)
	case lostNot:
		return errOf(bourse.CodeTimeout)
	case silent:
		c.silent[id] = time.Now().Add(5 * time.Second)
	case gone:
		c.silent[id] = time.Now().Add(time.Hour)
	case stolen, expired:
		if m := c.machines[id]; m != nil {
			m.expires = time.Now()
			if f == stolen {
				m.nonce, m.by, m.expires = "other", "bo", time.Now().Add(time.Hour)
			}
		}
	case jump:
		c.skew += time.Hour
	case back:
		c.skew -= time.Hour
	case noImage:
		return errOf(bourse.CodeNotFound)
	case noRoom:
		return errOf(bourse.CodeInsufficient)
	case suspends:
		err := do()
		c.overtake()
		return err
	case replaces, pulls, delayed:
		if call == "update" {
			c.land(c.machines[id], f, do)
			return errOf(bourse.CodeTimeout)
		}
		f = lostDone
	case lostDone: // handled below
	}
	if id != "" && time.Now().Before(c.silent[id]) {
		return errOf(bourse.CodeUnavailable)
	}
	err := do()
	if f == lostDone {
		return errOf(bourse.CodeTimeout)
	}
	return err
}

// land executes an update after a delay. The caller must hold mu.
func (c *cluster) land(m *fakeMachine, f fault, update func() error) {
	state := m.State
	m.pulling = f == pulls
	if f == replaces {
		m.State = bourse.StateReplacing
	}
	time.AfterFunc(f.lands(), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		m.pulling = false
		if f == replaces {
			m.State = state
		}
		_ = update() // nobody waits for the answer
	})
}

// pause blocks while the client is suspended, and returns the end of its suspension.
func (c *cluster) pause() time.Time {
	c.mu.Lock()
	until := c.paused
	c.mu.Unlock()
	time.Sleep(time.Until(until))
	return until
}

// overtake suspends the client while another client updates all machines. The caller must
// hold mu.
func (c *cluster) overtake() {
	c.paused, c.others = time.Now().Add(suspended), map[bourse.MachineID]bourse.InstanceID{}
	clear(c.reserved) // reservations expire
	for id, m := range c.machines {
		if m.State != bourse.StateDestroyed && m.Config.Env["EXIT"] == "" { // no other client changes a command's machine
			m.nonce, m.expires, m.InstanceID, m.Config = "", time.Time{}, bourse.NewInstanceID(), serving("v3")
			m.State, m.Cordoned, m.Starts = bourse.StateStarted, false, m.Starts+1
			c.others[id] = m.InstanceID
			c.changed(m)
		}
	}
}

// crash simulates a failure of a machine's program. If again is set, the worker restarts it.
func (c *cluster) crash(id bourse.MachineID, exit machinesapi.ExitEvent, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[id]
	m.State, m.Exit = bourse.StateStopped, &exit
	if again {
		m.State, m.Exit, m.Starts = bourse.StateStarted, nil, m.Starts+1
		m.Events = append([]machinesapi.Event{{Type: bourse.EventExit, Request: &machinesapi.EventRequest{ExitEvent: &exit}}}, m.Events...)
	}
	c.changed(m)
}

// of returns a machine if its lease permits a call with the given nonce. The caller must
// hold mu.
func (c *cluster) of(id bourse.MachineID, nonce string) (*fakeMachine, error) {
	m := c.machines[id]
	switch {
	case m == nil || m.State == bourse.StateDestroyed:
		return nil, errOf(bourse.CodeNotFound)
	case time.Now().Add(c.skew).Before(m.expires) && m.nonce != nonce:
		return nil, bourse.Errorf(bourse.CodeConflict, "machine %s lease currently held by %s", id, m.by)
	}
	return m, nil
}

func (c *cluster) act(ctx context.Context, call string, id bourse.MachineID, nonce string, do func(*fakeMachine) error) error {
	return c.change(ctx, call, id, func() error {
		m, err := c.of(id, nonce)
		if err == nil {
			err = do(m)
		}
		if err == nil && m.State != bourse.StateDestroyed {
			c.changed(m)
		}
		return err
	})
}

func (c *cluster) Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[id]
	switch {
	case ctx.Err() != nil:
		return machinesapi.Machine{}, errOf(bourse.CodeCanceled)
	case m == nil:
		return machinesapi.Machine{}, errOf(bourse.CodeNotFound)
	case time.Now().Before(c.silent[id]):
		return machinesapi.Machine{}, errOf(bourse.CodeUnavailable)
	}
	out := m.Machine
	if time.Now().Add(c.skew).Before(m.expires) {
		out.Lease = &machinesapi.LeaseInfo{Owner: "acme", Description: m.by, ExpiresAt: m.expires.Unix()}
	}
	return out, nil
}

func (c *cluster) Create(ctx context.Context, in machinesapi.CreateMachine, order bourse.OrderID) (out machinesapi.Machine, err error) {
	err = c.change(ctx, "create", "", func() error {
		if id, there := c.orders[order]; there {
			if in.FirstTry {
				c.wrong = append(c.wrong, "a repeated order that is marked as the first")
			}
			out = c.machines[bourse.MachineID(id)].Machine
			return nil
		}
		if c.room == 0 && in.Reservation == "" {
			return errOf(bourse.CodeInsufficient)
		}
		m := c.add(in.Config, in.SkipServiceRegistration)
		if in.SkipLaunch {
			m.State = bourse.StateStopped
		}
		if in.Config.Env["EXIT"] != "" {
			m.State = bourse.StateStopped
			m.Exit = &machinesapi.ExitEvent{ExitCode: int(in.Config.Env["EXIT"][0] - '0')}
		}
		c.orders[order] = string(m.ID)
		out = m.Machine
		return nil
	})
	return out, err
}

func (c *cluster) Update(ctx context.Context, id bourse.MachineID, in machinesapi.UpdateMachine, nonce string) (out machinesapi.Machine, err error) {
	err = c.act(ctx, "update", id, nonce, func(m *fakeMachine) error {
		switch {
		case m.State == bourse.StateReplacing:
			return errOf(bourse.CodeFailedPrecondition)
		case m.pulling, in.CurrentVersion != "" && in.CurrentVersion != m.InstanceID:
			return errOf(bourse.CodeConflict)
		}
		m.InstanceID, m.Config, m.State, m.Exit = bourse.NewInstanceID(), in.Config, bourse.StateStarted, nil
		m.Starts++
		if in.SkipLaunch {
			m.State = bourse.StateStopped
		}
		out = m.Machine
		if in.Config.Env["FAILS"] != "" {
			m.State = bourse.StateFailed
			return errOf(bourse.CodeFailedPrecondition)
		}
		return nil
	})
	return out, err
}

func (c *cluster) Destroy(ctx context.Context, id bourse.MachineID, nonce string) error {
	return c.act(ctx, "destroy", id, nonce, func(m *fakeMachine) error {
		c.serving(m, "destroyed")
		m.State = bourse.StateDestroyed
		c.changed(m)
		return nil
	})
}

// serving records an error if a machine stops running while a proxy may still send requests
// to it. what describes what happens to the machine. The caller must hold mu.
func (c *cluster) serving(m *fakeMachine, what string) {
	if m.State == bourse.StateStarted && m.Config.Env["SERVES"] != "" && (!m.Cordoned || time.Since(m.cordons) < hearsIn) {
		c.wrong = append(c.wrong, fmt.Sprintf("machine %s is %s before every proxy knows that it no longer serves", m.ID, what))
	}
}

func (c *cluster) SetMetadata(ctx context.Context, id bourse.MachineID, in machinesapi.MetadataPatch) error {
	return c.change(ctx, "metadata", id, func() error {
		m := c.machines[id]
		config := *m.Config
		config.Metadata = maps.Clone(config.Metadata)
		if config.Metadata == nil {
			config.Metadata = map[string]string{}
		}
		for k, v := range in.Metadata {
			if delete(config.Metadata, k); v != nil {
				config.Metadata[k] = *v
			}
		}
		m.Config = &config
		c.changed(m)
		return nil
	})
}

func (c *cluster) Logs(_ context.Context, id bourse.MachineID, want machinesapi.LogQuery, line func(machinesapi.LogLine) error) error {
	if want.After != "" {
		return nil
	}
	return line(machinesapi.LogLine{Text: "last words of " + string(id), Position: "1"})
}

func (c *cluster) Start(ctx context.Context, id bourse.MachineID, nonce string) error {
	return c.act(ctx, "start", id, nonce, func(m *fakeMachine) error {
		if m.State == bourse.StateStopping {
			return errOf(bourse.CodeFailedPrecondition)
		}
		if m.State != bourse.StateStarted {
			m.State = bourse.StateStarted
			m.Starts++
		}
		return nil
	})
}

func (c *cluster) Stop(ctx context.Context, id bourse.MachineID, nonce string) error {
	return c.act(ctx, "stop", id, nonce, func(m *fakeMachine) error {
		c.serving(m, "stopped")
		m.State = bourse.StateStopped
		return nil
	})
}

func (c *cluster) Restart(ctx context.Context, id bourse.MachineID, nonce string) error {
	return c.act(ctx, "restart", id, nonce, func(m *fakeMachine) error {
		m.Starts++
		return nil
	})
}

func (c *cluster) Cordon(ctx context.Context, id bourse.MachineID, cordoned bool, nonce string) error {
	return c.act(ctx, "cordon", id, nonce, func(m *fakeMachine) error {
		if m.Cordoned != cordoned {
			m.Cordoned, m.cordons = cordoned, time.Now()
		}
		return nil
	})
}

func (c *cluster) Wait(ctx context.Context, id bourse.MachineID, want machinesapi.WaitMachine) (machinesapi.WaitReply, error) {
	end := time.Now().Add(time.Duration(want.Timeout))
	for {
		m, err := c.Machine(ctx, id)
		if err != nil || slices.Contains(want.States, string(m.State)) || slices.Contains(want.States, machinesapi.StateSettled) && m.State.Settled() {
			return machinesapi.WaitReply{OK: true, State: m.State}, err
		}
		if sleep(ctx, 10*time.Millisecond) != nil {
			return machinesapi.WaitReply{}, errOf(bourse.CodeCanceled)
		}
		if time.Now().After(end) {
			return machinesapi.WaitReply{}, errOf(bourse.CodeTimeout)
		}
	}
}

func (c *cluster) Acquire(ctx context.Context, id bourse.MachineID, in machinesapi.LeaseRequest, nonce string) (out machinesapi.Lease, err error) {
	call := "acquire"
	if nonce != "" {
		call = "extend"
	}
	err = c.act(ctx, call, id, nonce, func(m *fakeMachine) error {
		now := time.Now().Add(c.skew)
		if !now.Before(m.expires) && m.nonce != nonce || m.nonce == "" {
			c.next++
			m.nonce, m.by = fmt.Sprint("nonce", c.next), in.Description
		}
		m.expires = now.Add(time.Duration(in.TTL) * time.Second)
		out = machinesapi.Lease{Nonce: m.nonce, ExpiresAt: m.expires.Unix(), Version: m.InstanceID}
		return nil
	})
	return out, err
}

func (c *cluster) Release(ctx context.Context, id bourse.MachineID, nonce string) error {
	return c.act(ctx, "release", id, nonce, func(m *fakeMachine) error {
		m.nonce, m.expires = "", time.Time{}
		return nil
	})
}

func (c *cluster) MakeVolume(ctx context.Context, in machinesapi.CreateVolume, order bourse.OrderID) (out machinesapi.Volume, err error) {
	err = c.change(ctx, "make volume", "", func() error {
		if c.apart && (in.UniqueZone == nil || *in.UniqueZone) {
			c.orders[order] = "refused"
			return errOf(bourse.CodeInsufficient)
		}
		id, there := c.orders[order]
		if !there {
			c.next++
			id = fmt.Sprint("vol", c.next)
			c.orders[order] = id
		}
		c.volumes[bourse.VolumeID(id)] = true
		out.ID, out.State = bourse.VolumeID(id), bourse.VolumeCreated
		return nil
	})
	return out, err
}

func (c *cluster) Volume(_ context.Context, id bourse.VolumeID) (machinesapi.Volume, error) {
	return machinesapi.Volume{VolumeSummary: machinesapi.VolumeSummary{ID: id, State: bourse.VolumeCreated}}, nil
}

func (c *cluster) DestroyVolume(ctx context.Context, id bourse.VolumeID) error {
	return c.change(ctx, "destroy volume", "", func() error {
		if !c.volumes[id] {
			return errOf(bourse.CodeNotFound)
		}
		delete(c.volumes, id)
		return nil
	})
}

func (c *cluster) Reserve(ctx context.Context, in machinesapi.CreateReservation) (out machinesapi.Reservation, err error) {
	err = c.change(ctx, "reserve", "", func() error {
		out.ID = in.ID.At([]bourse.WorkerTag{1})
		if _, there := c.reserved[out.ID]; there {
			return nil
		}
		n := 0
		for _, o := range in.Orders {
			n += int(*o.Count)
		}
		if c.room >= 0 && n > c.room {
			return errOf(bourse.CodeInsufficient)
		}
		c.room = max(-1, c.room-n)
		c.reserved[out.ID] = time.Now().Add(time.Duration(*in.TTLSeconds) * time.Second)
		return nil
	})
	return out, err
}

func (c *cluster) Extend(ctx context.Context, id bourse.ReservationID, in machinesapi.ExtendReservation) (out machinesapi.Reservation, err error) {
	err = c.change(ctx, "extend reservation", "", func() error {
		if c.reserved[id].Before(time.Now()) {
			return errOf(bourse.CodeConflict)
		}
		c.reserved[id] = time.Now().Add(time.Duration(*in.TTLSeconds) * time.Second)
		return nil
	})
	return out, err
}

func (c *cluster) EndReservation(ctx context.Context, id bourse.ReservationID) error {
	return c.change(ctx, "end reservation", "", func() error {
		delete(c.reserved, id)
		return nil
	})
}

func (c *cluster) Health(context.Context) (machinesapi.ViewHealth, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out machinesapi.ViewHealth
	broker := machinesapi.MemberHealth{ID: "b1", Role: bourse.RoleBroker, Reachable: true}
	for _, m := range c.machines {
		broker.Heads = append(broker.Heads, machinesapi.ViewHead{Site: m.Worker, Epoch: 1, Seq: uint64(m.seq)})
	}
	out.Members = append(out.Members, broker)
	for p := range c.proxies {
		proxy := machinesapi.MemberHealth{ID: bourse.WorkerID(fmt.Sprint("p", p)), Role: bourse.RoleProxy, Reachable: true}
		for _, m := range c.machines {
			n := 0
			for _, at := range m.heard {
				if time.Since(at) >= hearsIn {
					n++
				}
			}
			proxy.Heads = append(proxy.Heads, machinesapi.ViewHead{Site: m.Worker, Epoch: 1, Seq: uint64(n)})
		}
		out.Members = append(out.Members, proxy)
	}
	return out, nil
}

func (c *cluster) Rows(ctx context.Context, news func(Row)) error {
	c.mu.Lock()
	c.next++
	key := c.next
	for _, m := range c.machines {
		news(rowOfMachine(m))
	}
	news(Row{})
	c.watchers[key] = news
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers, key)
	return ctx.Err()
}

func (c *cluster) SetRelease(_ context.Context, _ release.ID, status release.Status, _ Note) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releases = append(c.releases, status)
	return nil
}

// shape describes the app's machines, without their version IDs.
func (c *cluster) shape() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, m := range c.machines {
		if m.State != bourse.StateDestroyed {
			metadata, _ := json.Marshal(m.Config.Metadata)
			out = append(out, fmt.Sprintf("%s %s %s cordoned=%v %s", m.ID, m.State, m.Config.Env["VERSION"], m.Cordoned, metadata))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out, len(c.volumes))
}
