package run

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Bounds of an order: where an image may have to be pulled it has more time.
const (
	orderWithin = 15 * time.Second
	pullWithin  = bourse.MaxWithin + orderWithin
)

// makeMachine makes a machine.
func (r *runner) makeMachine(ctx context.Context, i int) error {
	in, err := r.order(i)
	if err != nil {
		return err
	}
	_, err = r.create(ctx, i, in)
	return err
}

// order is what a step orders.
func (r *runner) order(i int) (machinesapi.CreateMachine, error) {
	s := &r.plan.Steps[i]
	config := *s.Config
	if err := r.fill(s, &config); err != nil {
		return machinesapi.CreateMachine{}, err
	}
	return machinesapi.CreateMachine{
		Region: string(s.In), Config: &config, SkipLaunch: s.Stopped, SkipServiceRegistration: s.Hidden,
	}, nil
}

// create places a step's order. Its id is chosen once, so that a repetition finds what the
// first request has made.
func (r *runner) create(ctx context.Context, i int, in machinesapi.CreateMachine) (m machinesapi.Machine, err error) {
	limit := pullWithin
	if kind := in.Config.ImageKind(); kind == bourse.HostImage || kind == bourse.PollerImage {
		limit = orderWithin
	}
	err = r.again(ctx, try{step: i, limit: limit}, func(ctx context.Context, _ bool) error {
		id, first := r.orderID(i)
		in.FirstTry = first
		if !in.SkipLaunch {
			in.Reservation = r.rooms.of(i, first)
		}
		var err error
		m, err = r.api.Create(ctx, in, id)
		r.orderOutcome(i, err)
		return err
	})
	if err != nil {
		return m, err
	}
	r.with(i, func(p *progress) { p.machine = m.ID })
	r.noteMade(&m)
	return m, nil
}

// orderID returns the id of a step's order, and whether it is sent for the first time.
func (r *runner) orderID(i int) (id bourse.OrderID, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.at[i]
	first = !p.sent
	if p.sent = true; p.order == "" {
		p.order = bourse.NewOrderID()
	}
	return p.order, first
}

// makeVolume makes a volume and waits until it can be attached.
func (r *runner) makeVolume(ctx context.Context, i int) error {
	if err := r.createVolume(ctx, i); err != nil {
		return err
	}
	id := r.get(i).volume
	began := time.Now()
	for {
		var v machinesapi.Volume
		err := r.again(ctx, try{step: i, limit: quick}, func(ctx context.Context, _ bool) (err error) {
			v, err = r.api.Volume(ctx, id)
			return err
		})
		switch {
		case err != nil:
			return err
		case v.State == bourse.VolumeCreated:
			return nil
		case v.State == bourse.VolumeFailed:
			return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s could not be made: %s", id, v.Error)
		case time.Since(began) > r.waitOf(&r.plan.Steps[i]):
			return bourse.Errorf(bourse.CodeTimeout, "volume %s is still %s after %s", id, v.State, time.Since(began).Round(time.Second))
		}
		if err := rest(ctx, lookWithoutNews); err != nil { // nothing says when it is filled
			return err
		}
	}
}

func (r *runner) createVolume(ctx context.Context, i int) error {
	s := &r.plan.Steps[i]
	in := machinesapi.CreateVolume{Name: s.Volume.Name, Region: string(s.In), Source: s.Volume.Fork}
	if s.Volume.AnyWorker {
		in.UniqueZone = new(false)
	}
	if s.Volume.SizeGB > 0 {
		in.SizeGB = &s.Volume.SizeGB
	}
	if s.Config != nil { // the worker has to have room for the machine, too, and to run its image
		in.ComputeImage = s.Config.Image
		if s.Config.Guest != nil {
			in.Compute = &machinesapi.Compute{Guest: *s.Config.Guest}
		}
		in.Requirements = s.Config.Requirements
	}
	order := func() error {
		return r.again(ctx, try{step: i, limit: orderWithin}, func(ctx context.Context, _ bool) error {
			id, first := r.orderID(i)
			in.FirstTry = first
			v, err := r.api.MakeVolume(ctx, in, id)
			r.orderOutcome(i, err)
			if err == nil {
				r.with(i, func(p *progress) { p.volume = v.ID })
			}
			return err
		})
	}
	err := order()
	if bourse.CodeOf(err) != bourse.CodeInsufficient || s.Volume.AnyWorker {
		return err
	}
	r.emit(Event{Step: i, State: Waiting, Text: "no worker without a volume of this name would take it: it may share one"})
	r.with(i, func(p *progress) { p.order, p.sent = "", false }) // the former one is refused
	in.UniqueZone = new(false)
	return order()
}

// runCommand runs a machine to its end.
func (r *runner) runCommand(ctx context.Context, i int) error {
	in, err := r.order(i)
	if err != nil {
		return err
	}
	in.Config.AutoDestroy = false // what it wrote would go with it; it is destroyed once that is read, or by a later plan
	m, err := r.create(ctx, i, in)
	if err != nil {
		return err
	}
	m, err = r.commandEnd(ctx, i, m.ID)
	if m.State != bourse.StateDestroyed {
		left := r.destroyMachine(r.hard, i, m.ID, "")
		r.with(i, func(p *progress) { p.undo = left })
	}
	if err != nil {
		return err
	}
	return exitOf(&m)
}

// commandEnd waits until a command has ended and all it wrote is passed on.
func (r *runner) commandEnd(ctx context.Context, i int, id bourse.MachineID) (machinesapi.Machine, error) {
	m := machinesapi.Machine{Summary: machinesapi.Summary{ID: id}}
	follow, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.follow(follow, i, id, machinesapi.LogQuery{Follow: true})
	}()
	defer func() { stop(); <-read }()
	err := r.awaitState(ctx, i, id, r.waitOf(&r.plan.Steps[i]), bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed)
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound { // it was quick to go
		return m, err
	}
	found, err := r.look(ctx, i, id)
	if err != nil {
		return m, err
	}
	if found.State == bourse.StateDestroyed || found.State == bourse.StateDestroying {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-read: // what it wrote ends with it
		case <-late.C:
		case <-ctx.Done():
		}
		return found, nil
	}
	stop()
	<-read
	r.follow(ctx, i, id, machinesapi.LogQuery{After: r.lastPosition(i)})
	return found, nil
}

// lastPosition is that of the last line of a step's machine.
func (r *runner) lastPosition(i int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lines := r.lines[i]; len(lines) > 0 {
		return lines[len(lines)-1].Position
	}
	return ""
}

// exitOf returns the error of a command that has not ended with status 0.
func exitOf(m *machinesapi.Machine) error {
	exit := m.Exit
	for _, e := range m.Events {
		if exit == nil && e.Request != nil {
			exit = e.Request.ExitEvent
		}
	}
	switch {
	case exit == nil:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command did not run: machine %s is %s", m.ID, m.State)
	case exit.ExitCode != 0 && exit.Error != "":
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command ended with status %d: %s", exit.ExitCode, exit.Error)
	case exit.ExitCode != 0:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command ended with status %d", exit.ExitCode)
	}
	return nil
}

// follow passes on what a machine writes, until ctx or the machine ends, or all is read.
func (r *runner) follow(ctx context.Context, i int, id bourse.MachineID, want machinesapi.LogQuery) {
	for wait := backFirst; ; wait = min(2*wait, backMost) {
		err := r.api.Logs(ctx, id, want, func(line machinesapi.LogLine) error {
			wait, want.After = backFirst, line.Position
			r.mu.Lock()
			r.lines[i] = lastLines(append(r.lines[i], line))
			r.mu.Unlock()
			r.emit(Event{Step: i, State: Output, Line: &line})
			return nil
		})
		switch bourse.CodeOf(err) {
		case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeRateLimited:
		default:
			return
		}
		if rest(ctx, wait) != nil {
			return
		}
	}
}
