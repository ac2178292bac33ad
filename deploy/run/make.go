package run

import (
	"cmp"
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Time limits for orders. pullTimeout applies if the worker may have to pull the image first.
const (
	orderTimeout = 15 * time.Second
	pullTimeout  = bourse.MaxOrderTimeout + orderTimeout
)

// machineOrder returns the order for the machine that a step creates.
func (o operation) machineOrder(region bourse.Region, do deploy.MakeMachine) machinesapi.CreateMachine {
	config := *do.Config
	config.Standbys = o.standbys(config.Standbys, do.StandbyOf)
	if do.Volume != nil {
		config.Mounts = append([]bourse.Mount{}, config.Mounts...)
		config.Mounts[0].Volume = o.journal.get(*do.Volume).volume
	}
	return machinesapi.CreateMachine{Region: string(region), Config: &config, SkipLaunch: do.Stopped, SkipServiceRegistration: do.Cordoned}
}

// create places the step's order for a machine. All requests for the step contain the same order ID, so that a
// repeated request finds the machine that an earlier request created.
func (o operation) create(ctx context.Context, in machinesapi.CreateMachine) (m machinesapi.Machine, err error) {
	limit := pullTimeout
	if kind := in.Config.ImageKind(); kind == bourse.HostImage || kind == bourse.PollerImage {
		limit = orderTimeout
	}
	err = o.repeat(ctx, "", limit, func(ctx context.Context, _ bool) error {
		id, first := o.orderID()
		in.FirstTry = first
		if !in.SkipLaunch {
			in.Reservation = o.reservations.of(o.i, first)
		}
		m, err = o.api.Create(ctx, in, id)
		o.orderOutcome(err)
		return err
	})
	if err != nil {
		return m, err
	}
	o.journal.change(o.i, func(p *progress) { p.machine = m.ID })
	o.journal.made(&m)
	return m, nil
}

// orderID returns the ID of the step's order. first is true if the order has not been sent before.
func (o operation) orderID() (id bourse.OrderID, first bool) {
	o.journal.change(o.i, func(p *progress) {
		first = !p.sent
		if p.sent = true; p.order == "" {
			p.order = bourse.NewOrderID()
		}
		id = p.order
	})
	return id, first
}

// orderOutcome is like outcome, but for requests that contain an order ID. If such a request is refused, the outcome
// of all earlier requests with this ID is known as well, because an order is either filled or refused, no matter how
// often it is sent.
func (o operation) orderOutcome(err error) {
	switch bourse.CodeOf(err) {
	case bourse.CodeTimeout, bourse.CodeCanceled, bourse.CodeUnavailable, bourse.CodeRateLimited:
		o.outcome(err)
	default:
		o.outcome(nil)
	}
}

// makeVolume creates a volume, and waits until it can be attached.
func (o operation) makeVolume(ctx context.Context, region bourse.Region, do deploy.MakeVolume) error {
	if err := o.createVolume(ctx, region, do); err != nil {
		return err
	}
	id := o.journal.get(o.i).volume
	began := time.Now()
	for {
		var v machinesapi.Volume
		err := o.repeat(ctx, "", requestTimeout, func(ctx context.Context, _ bool) (err error) {
			v, err = o.api.Volume(ctx, id)
			return err
		})
		switch {
		case err != nil:
			return err
		case v.State == bourse.VolumeCreated:
			return nil
		case v.State == bourse.VolumeFailed:
			return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s could not be created: %s", id, v.Error)
		case time.Since(began) > o.opts.Wait:
			return bourse.Errorf(bourse.CodeTimeout, "volume %s is still %s after %s", id, v.State, time.Since(began).Round(time.Second))
		}
		if err := sleep(ctx, fastInterval); err != nil { // poll, because the view updates cover only machines
			return err
		}
	}
}

func (o operation) createVolume(ctx context.Context, region bourse.Region, do deploy.MakeVolume) error {
	in := machinesapi.CreateVolume{Name: do.Name, Region: string(region), Source: do.Fork}
	if do.AnyWorker {
		in.UniqueZone = new(false)
	}
	if do.SizeGB > 0 {
		in.SizeGB = &do.SizeGB
	}
	if do.Machine != nil { // the worker must also support the machine's image and have capacity for the machine
		in.ComputeImage, in.Requirements = do.Machine.Image, do.Machine.Requirements
		if do.Machine.Guest != nil {
			in.Compute = &machinesapi.Compute{Guest: *do.Machine.Guest}
		}
	}
	order := func() error {
		return o.repeat(ctx, "", orderTimeout, func(ctx context.Context, _ bool) error {
			id, first := o.orderID()
			in.FirstTry = first
			v, err := o.api.MakeVolume(ctx, in, id)
			o.orderOutcome(err)
			if err == nil {
				o.journal.change(o.i, func(p *progress) { p.volume = v.ID })
			}
			return err
		})
	}
	err := order()
	if bourse.CodeOf(err) != bourse.CodeInsufficient || do.AnyWorker {
		return err
	}
	o.emit(Event{Step: o.i, State: Waiting, Text: "every suitable worker already has a volume with this name: trying those workers, too"})
	o.journal.change(o.i, func(p *progress) { p.order, p.sent = "", false }) // the order was refused, so the next request needs a new order ID
	in.UniqueZone = new(false)
	return order()
}

// runCommand creates a machine for a command and waits until the command has exited.
func (o operation) runCommand(ctx context.Context, do deploy.RunCommand) error {
	in := o.machineOrder(o.plan.Steps[o.i].Region, deploy.MakeMachine{Config: do.Config})
	// Keep the machine until its output has been read. After that, this run destroys it or, if that fails, a later
	// plan does.
	in.Config.AutoDestroy = false
	m, err := o.create(ctx, in)
	if err != nil {
		return err
	}
	m, err = o.commandEnd(ctx, m.ID, cmp.Or(time.Duration(do.Timeout), o.opts.Wait))
	if m.State != bourse.StateDestroyed {
		left := o.destroyMachine(o.abandonCtx, target{id: m.ID})
		o.journal.change(o.i, func(p *progress) { p.undo = left })
	}
	if err != nil {
		return err
	}
	return exitOf(&m)
}

// commandEnd waits until a command has exited and all of its output has been reported.
func (o operation) commandEnd(ctx context.Context, id bourse.MachineID, most time.Duration) (machinesapi.Machine, error) {
	m := machinesapi.Machine{Summary: machinesapi.Summary{ID: id}}
	follow, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan struct{})
	go func() {
		defer close(read)
		o.follow(follow, id, machinesapi.LogQuery{Follow: true})
	}()
	defer func() { stop(); <-read }()
	err := o.awaitState(ctx, id, most, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed)
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound { // not_found: it has already been destroyed
		return m, err
	}
	found, err := o.readMachine(ctx, id)
	if err != nil {
		return m, err
	}
	if found.State == bourse.StateDestroyed || found.State == bourse.StateDestroying {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-read: // the output ends when the machine is destroyed
		case <-late.C:
		case <-ctx.Done():
		}
		return found, nil
	}
	stop()
	<-read
	remaining := machinesapi.LogQuery{}
	if lines := o.journal.output(o.i); len(lines) > 0 {
		remaining.After = lines[len(lines)-1].Position
	}
	o.follow(ctx, id, remaining)
	return found, nil
}

// exitOf returns an error unless the machine's command has exited with status 0.
func exitOf(m *machinesapi.Machine) error {
	switch exit := latestExit(m); {
	case exit == nil:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command did not run: machine %s is %s", m.ID, m.State)
	case exit.ExitCode != 0 && exit.Error != "":
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command exited with status %d: %s", exit.ExitCode, exit.Error)
	case exit.ExitCode != 0:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the command exited with status %d", exit.ExitCode)
	}
	return nil
}

// follow reports a machine's output as events until ctx is done or the output ends.
func (o operation) follow(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery) {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := o.api.Logs(ctx, id, want, func(line machinesapi.LogLine) error {
			wait, want.After = minBackoff, line.Position
			o.journal.addOutput(o.i, line)
			o.emit(Event{Step: o.i, State: Output, Line: &line})
			return nil
		})
		switch bourse.CodeOf(err) {
		case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeRateLimited:
		default:
			return
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}
