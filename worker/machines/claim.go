package machines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Claim fills an order for a machine, or returns a refusal. It returns once the machine has started or, if the order
// skips the launch, once the machine is prepared. If the machine fails to start, Claim returns a refusal. If ctx is
// done first, the start continues in the background, and the caller can look up or cancel the order by its id.
func (ms *Machines) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	order := &c.Order
	err := ms.host.Precheck(ms.state.Store, order)
	var m bourse.Machine
	var started func(context.Context) error
	if err == nil {
		m, started, err = ms.Begin(ctx, c, ms.recordOrder(c))
	}
	if err != nil {
		fill, refusal, err := ms.host.Answer(err)
		if fill != nil {
			return ms.filledBefore(ctx, order, fill.Machine.ID)
		}
		return nil, refusal, err
	}
	claimed, id := time.Since(begin), m.ID
	err = started(ctx)
	switch code := bourse.CodeOf(err); {
	case err == nil:
		if m, err = ms.state.Machine(ctx, id); err != nil { // not a refusal, because the order is already filled
			return nil, nil, err
		}
		return &bourse.Fill{Machine: m, Claimed: claimed, Started: time.Since(begin) - claimed}, nil, nil
	case ctx.Err() != nil:
		return nil, nil, err
	case code == bourse.CodeCanceled:
		return nil, ms.host.Refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case code == bourse.CodeTimeout: // the daemon is stopping; the start continues after the daemon's restart
		return nil, nil, err
	default:
		return nil, ms.StartRefusal(ctx, order, id, err), nil
	}
}

// Begin decides whether to fill a claim's order. If so, one transaction records the machine, its resources, its order
// (with recordOrder) and the run that will start the machine, before anything happens on the host. The returned
// function waits for the run, as [state.Started] does. The error is an [admit.NotFilledError] if the order is already
// filled or is refused.
func (ms *Machines) Begin(ctx context.Context, c *bourse.Claim, recordOrder func(*store.Tx, *bourse.Machine) error) (bourse.Machine, func(context.Context) error, error) {
	for {
		m := ms.newMachine(c)
		def := ms.defs.of(&m).create
		if c.Order.SkipLaunch {
			def = ms.defs.of(&m).prepare
		}
		req := machineRequest{Machine: m.ID, Boot: m.Boot.Number}
		if !isHostProgram(&m) || m.Secrets > 0 || m.Config.ImageKind() == bourse.PollerImage {
			req.Until = startDeadline(ctx, &m, &c.Order)
		}
		run, err := def.Start(ctx, ms.state.Engine, state.OfMachine(m.ID), req, fsm.StartOptions{
			Write: state.InTx(func(tx *store.Tx) error { return ms.recordClaim(tx, c, m, recordOrder) }),
		})
		switch {
		case errors.Is(err, errIDInUse):
			continue
		case err != nil:
			return m, nil, err
		}
		ms.state.Machines.Applied(m.ID)
		return m, func(ctx context.Context) error { return state.Started(ctx, run) }, nil
	}
}

// errIDInUse is returned if a new machine's random id is already in use.
var errIDInUse = errors.New("taken")

// newMachine returns the machine that a claim's order describes. The remaining fields are set in the transaction that
// records the machine.
func (ms *Machines) newMachine(c *bourse.Claim) bourse.Machine {
	order, now := &c.Order, time.Now().UTC()
	m := bourse.Machine{
		ID: bourse.NewMachineID(ms.state.Self.Tag), Name: order.Name, App: order.App.Name, AppID: order.App.ID,
		Worker: ms.state.Self.Worker, Region: ms.state.Self.Region,
		Order: order.ID, Placement: c.Placement, Instance: bourse.NewInstanceID(), State: bourse.StateCreated, Config: order.Config,
		Cordoned: order.Cordoned, Secrets: order.Secrets, SkipSecrets: order.SkipSecrets, CreatedAt: now, UpdatedAt: now,
	}
	if order.LeaseTTL > 0 {
		m.Lease = newLease(order.LeaseOwner, "", now.Add(time.Duration(order.LeaseTTL)*time.Second))
	}
	if ms.host.Private[m.Config.ImageKind()] {
		m.Network = order.App.PrivateNetwork()
		m.PrivateIP = bourse.PrivateAddress(m.Network, m.ID)
	}
	if !order.SkipLaunch {
		m.State, m.Boot.Number = bourse.StateStarting, 1
	}
	return m
}

// recordOrder returns a function that records which machine has filled a claim's order.
func (ms *Machines) recordOrder(c *bourse.Claim) func(*store.Tx, *bourse.Machine) error {
	return func(tx *store.Tx, m *bourse.Machine) error {
		decision := c.Decision
		decision.Outcome, decision.Worker, decision.Machine = bourse.OutcomeFilled, ms.state.Self.Worker, m.ID
		return tx.PutOrder(store.OrderRecord{ID: c.Order.ID, Machine: m.ID, Decision: decision, At: m.CreatedAt})
	}
}

// recordClaim decides whether to fill a claim's order. If so, it records machine m with the resources, devices and port
// from the decision.
func (ms *Machines) recordClaim(tx *store.Tx, c *bourse.Claim, m bourse.Machine, recordOrder func(*store.Tx, *bourse.Machine) error) error {
	d, err := ms.host.Take(tx, &c.Order, time.Now())
	if err != nil {
		return err
	}
	if _, err := tx.Machine(m.ID); err == nil {
		return errIDInUse
	}
	m.Takes, m.Devices, m.Boot.Port = d.Takes, d.Devices, d.Port
	if c.Order.SkipLaunch {
		m.Takes = admit.WhileStopped(m.Takes)
	}
	if m.Name == "" {
		if m.Name, err = freeName(tx, c.Order.App); err != nil {
			return err
		}
	}
	if err := recordOrder(tx, &m); err != nil {
		return err
	}
	if err := state.MergeApp(tx, c.Order.App); err != nil {
		return err
	}
	for i := range d.UsedHolds {
		if err := tx.PutHold(&d.UsedHolds[i]); err != nil {
			return err
		}
	}
	if m.PrivateIP.IsValid() {
		if err := address(tx, &m); err != nil {
			return err
		}
	}
	if err := ms.volumes.Attach(tx, &m); err != nil {
		return err
	}
	if err := tx.PutMachine(&m); err != nil {
		return err
	}
	if withSecrets(&m) {
		if err := keepKeys(tx, m.ID, c.AppKeys); err != nil {
			return err
		}
	}
	launch := bourse.Event{Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, By: c.Order.LeaseOwner, At: m.CreatedAt}
	return state.AppendEvent(tx, &m, "", launch)
}

// filledBefore answers a repeated claim. It waits until the machine that was created by the order's first claim has
// started or failed to start.
func (ms *Machines) filledBefore(ctx context.Context, order *bourse.Order, id bourse.MachineID) (*bourse.Fill, *bourse.Refusal, error) {
	if _, err := ms.state.AwaitMachine(ctx, id, func(m *bourse.Machine) bool { return m.State.Settled() }); err != nil {
		return nil, nil, fmt.Errorf("wait for the order's first claim: %w", err)
	}
	return ms.host.Repeat(ms.state.Store, order)
}

// freeName returns a random name that none of the app's live machines uses.
func freeName(tx *store.Tx, app bourse.App) (string, error) {
	for {
		name := randomName()
		if _, taken, err := tx.MachineNamed(app, name); err != nil || !taken {
			return name, err
		}
	}
}

// StartRefusal returns the refusal for an order whose machine failed to start. It derives the reason from err, the
// error of the run that started the machine, and from the machine's record.
func (ms *Machines) StartRefusal(ctx context.Context, order *bourse.Order, id bourse.MachineID, err error) *bourse.Refusal {
	m, unread := ms.state.Machine(ctx, id)
	known := unread == nil
	reason, about := startReason(order, known && m.Image != nil, bourse.CodeOf(err))
	r := ms.host.Refusal(reason, bourse.MessageOf(err))
	r.Resource = about
	if known && bourse.CodeOf(err) == bourse.CodeInternal && m.Boot.Exit != nil {
		r.Detail = m.Boot.Exit.Error // the run's error hides internal errors, but this message may be shown to clients
	}
	return r
}

// startReason returns the reason and the resource for a refusal. code is the code of the error that prevented the
// machine from starting. pulled is true if the machine's image is on the host. If it is false, the error came from the
// image's registry.
func startReason(order *bourse.Order, pulled bool, code bourse.Code) (reason bourse.RefusalReason, about string) {
	kind := order.Config.ImageKind()
	pulling := kind == bourse.RegistryImage && !pulled
	switch code {
	case bourse.CodeFailedPrecondition: // the machine was destroyed before it started
		return bourse.RefusedCanceled, ""
	case bourse.CodeInsufficient:
		if kind == bourse.PollerImage {
			return bourse.RefusedResource, admit.ResourcePollers
		}
		return bourse.RefusedResource, admit.ResourceImages
	case bourse.CodeNotFound:
		if pulling {
			return bourse.RefusedNoImage, order.Config.Image
		}
	case bourse.CodeUnavailable:
		if pulling {
			return bourse.RefusedRegistry, order.Config.Image
		}
		return bourse.RefusedUnavailable, ""
	case bourse.CodeInvalid:
		if pulling {
			return bourse.RefusedImage, order.Config.Image
		}
		return bourse.RefusedProgram, ""
	default:
	}
	return bourse.RefusedDriver, ""
}

// answerMargin is the maximum time reserved for answering a claim. The worker gives up starting the claim's machine up
// to this long before the claim's deadline, so that it can still report the reason.
const answerMargin = 300 * time.Millisecond

// startDeadline returns the time at which the worker gives up starting an order's machine: the order's deadline, or
// shortly before ctx's deadline if that is earlier.
func startDeadline(ctx context.Context, m *bourse.Machine, order *bourse.Order) time.Time {
	until := m.CreatedAt.Add(order.Deadline())
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if end = m.CreatedAt.Add(left - min(answerMargin, left/8)); end.Before(until) {
			return end
		}
	}
	return until
}

var (
	adjectives = []string{
		"amber", "bold", "brisk", "calm", "clear", "cold", "crisp", "dark", "deep", "dry", "early", "fair", "fast", "fresh", "gentle",
		"green", "high", "icy", "keen", "late", "light", "lively", "long", "loud", "mild", "misty", "neat", "noble", "polar", "proud",
		"quick", "quiet", "rapid", "red", "sharp", "silent", "small", "snowy", "solid", "still", "sunny", "swift", "tall", "warm", "wild", "young",
	}
	nouns = []string{
		"anchor", "bay", "beach", "bird", "breeze", "brook", "canal", "cloud", "coast", "creek", "dawn", "delta", "dune", "dusk", "field",
		"fjord", "flower", "fog", "forest", "frost", "glade", "harbor", "hill", "island", "lake", "leaf", "meadow", "moon", "morning", "mountain",
		"ocean", "paper", "peak", "pine", "pond", "rain", "reef", "river", "sea", "shore", "sky", "snow", "star", "stone", "stream", "sun",
		"surf", "tide", "tree", "valley", "water", "wave", "wind", "wood",
	}
)

// randomName returns a random machine name in the form that the Machines API uses:
// adjective-noun-NNNN.
func randomName() string {
	return fmt.Sprintf("%s-%s-%04d", adjectives[rand.IntN(len(adjectives))], nouns[rand.IntN(len(nouns))], rand.IntN(10000))
}
