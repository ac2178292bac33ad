// Package reach gives proxies and clients a worker's machines in the state that they
// need. A proxy asks for a machine and is answered once the machine runs and accepts
// connections, with its address; until a few seconds after, the machine counts as in
// use. A client's wait returns once the machine has reached one of the given states.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Bounds of what is asked.
const (
	mostWait     = 5 * time.Minute // an image may be on its way
	mostTTL      = time.Minute
	mostRequests = 1 << 20
)

// A program that was restarted at least crashLoop times, and whose last run was shorter
// than shortRun, is expected to exit again: requests fail at once instead of waiting for
// it. Requests do wait for a program that crashes only now and then.
const (
	crashLoop = 3
	shortRun  = 10 * time.Second
)

// Machines are the records of a worker's machines.
type Machines interface {
	// Machine reads a machine. CodeNotFound: there is none, and was none lately.
	Machine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error)
	// AwaitMachine reads a machine at each change until it is as wanted.
	AwaitMachine(ctx context.Context, id bourse.MachineID, wanted func(*bourse.Machine) bool) (bourse.Machine, error)
}

// Uses counts who uses a machine.
type Uses interface {
	// Use counts a machine as in use by who, with so many requests in progress,
	// for as long as ttl says. A machine's state that is read afterwards is one that
	// knew of it.
	Use(id bourse.MachineID, who string, requests int, ttl time.Duration)
	// Begin counts a machine as in use until done is called.
	Begin(id bourse.MachineID) (done func())
	// Others returns how many requests are in progress of all others but who.
	Others(id bourse.MachineID, who string) int
}

// Config says what a Reach stands on.
type Config struct {
	Machines Machines
	// Start starts or resumes a machine and returns when it has started.
	Start func(ctx context.Context, id bourse.MachineID) error
	// Dial connects to a port of a machine that runs. CodeUnavailable: not yet.
	Dial func(ctx context.Context, m *bourse.Machine, port int) (net.Conn, error)
	Uses Uses   // nil: no use is counted
	Host string // of the worker, as package samehost has it; empty: all go through the tunnel
}

// Reach is one worker's. Its methods are safe for concurrent use.
type Reach struct{ Config }

// New makes a Reach. It starts nothing.
func New(c Config) *Reach { return &Reach{c} }

// Use counts a machine as in use and, when the request waits for it, has it run
// and accept connections. Errors: not_found when the machine is gone;
// failed_precondition when it does not run and is not to be started, cannot be, has no
// such port, or its program ends again and again; timeout when it did not come as far
// within the wait; unavailable when someone stopped it while it was waited for; and
// those of starting a machine.
func (r *Reach) Use(ctx context.Context, req fabric.UseRequest) (fabric.UseReply, error) {
	if err := validate(&req); err != nil {
		return fabric.UseReply{}, err
	}
	m, err := r.living(ctx, req.Machine) // what is not there takes no place among the uses
	if err != nil {
		return fabric.UseReply{}, err
	}
	if m.Config.ImageKind() == bourse.PollerImage {
		return fabric.UseReply{}, noWay(&m)
	}
	r.use(&req)
	if req.Wait == 0 {
		if m, err = r.living(ctx, req.Machine); err != nil { // again: see Uses
			return fabric.UseReply{}, err
		}
		return r.reply(&m, &req), nil
	}
	if r.Uses != nil { // however long it takes to accept connections
		defer r.Uses.Begin(req.Machine)()
	}
	if m, err = r.ready(ctx, &req); err != nil {
		return fabric.UseReply{}, err
	}
	r.use(&req) // from now on
	return r.reply(&m, &req), nil
}

func validate(req *fabric.UseRequest) error {
	req.TTL = min(req.TTL, bourse.Duration(mostTTL))
	req.Wait = min(req.Wait, bourse.Duration(mostWait))
	req.Requests = min(req.Requests, mostRequests)
	switch {
	case req.Port < 0 || req.Port > 65535:
		return bourse.Errorf(bourse.CodeInvalid, "invalid port %d: use 1 to 65535, or 0 for the machine's $PORT", req.Port)
	case req.TTL < 0 || req.Wait < 0 || req.Requests < 0:
		return bourse.Errorf(bourse.CodeInvalid, "invalid use: times and requests are 0 or more")
	}
	return req.By.Validate()
}

func (r *Reach) use(req *fabric.UseRequest) {
	if r.Uses != nil {
		r.Uses.Use(req.Machine, string(req.By), req.Requests, time.Duration(req.TTL))
	}
}

func (r *Reach) reply(m *bourse.Machine, req *fabric.UseRequest) fabric.UseReply {
	out := fabric.UseReply{State: m.State, Instance: m.Instance, Boot: m.Boot.Number, TTL: req.TTL}
	if r.Uses != nil {
		out.Others = r.Uses.Others(m.ID, string(req.By))
	}
	if port, err := admit.PortOf(m, req.Port); err == nil {
		out.Port = port
		if r.Host != "" && r.Host == req.Host && !m.PrivateIP.IsValid() {
			out.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String()
		}
	}
	return out
}

// living reads a machine that is not gone, nor about to be.
func (r *Reach) living(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	m, err := r.Machines.Machine(ctx, id)
	if err == nil && (m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying) {
		err = state.ErrNoMachine
	}
	return m, err
}

var (
	errWaited = errors.New("waited long enough")
	errMoved  = errors.New("the machine does not run any more")
)

// ready returns a machine that runs and accepts connections.
func (r *Reach) ready(ctx context.Context, req *fabric.UseRequest) (m bourse.Machine, err error) {
	wait := time.Duration(req.Wait)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	for started := false; ; {
		if m, err = r.running(ctx, req, &started); err == nil {
			err = r.accepts(ctx, &m, req.Port)
		}
		switch {
		case errors.Is(err, errMoved):
		case err != nil && errors.Is(context.Cause(ctx), errWaited):
			return m, late(&m, req, wait)
		default:
			return m, err
		}
	}
}

func (r *Reach) accepts(ctx context.Context, m *bourse.Machine, port int) error {
	ctx, span := trace.Start(ctx, "accept")
	err := r.accepting(ctx, m, port)
	span.End(err)
	return err
}

func late(m *bourse.Machine, req *fabric.UseRequest, wait time.Duration) error {
	if port, err := admit.PortOf(m, req.Port); m.State == bourse.StateStarted && err == nil {
		return bourse.Errorf(bourse.CodeTimeout, "machine %s runs, but nothing accepted connections on its port %d within %s", req.Machine, port, wait)
	}
	return bourse.Errorf(bourse.CodeTimeout, "machine %s did not start within %s: it is %s", req.Machine, wait, m.State)
}

// running returns the machine once it has started, and starts it at most once.
func (r *Reach) running(ctx context.Context, req *fabric.UseRequest, started *bool) (bourse.Machine, error) {
	for {
		m, err := r.living(ctx, req.Machine)
		if err != nil {
			return m, err
		}
		switch m.State {
		case bourse.StateStarted:
			return m, nil
		case bourse.StateRestarting:
			if loops(&m) {
				return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is in a crash loop: its program was restarted %d times, and has ended again%s",
					m.ID, len(m.Boot.Restarts)-1, exit(&m))
			}
		case bourse.StateCreated, bourse.StateStarting, bourse.StateReplacing:
		case bourse.StateStopping, bourse.StateSuspending:
			if !req.Start {
				return m, idle(&m)
			}
		case bourse.StateStopped, bourse.StateSuspended:
			switch {
			case *started && m.Boot.Requested:
				return m, bourse.Errorf(bourse.CodeUnavailable, "machine %s was stopped while a request waited for it", m.ID)
			case *started:
				return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s was started and has ended before it accepted connections%s", m.ID, exit(&m))
			case !req.Start:
				return m, idle(&m)
			}
			if err := r.start(ctx, &m); err != nil {
				return m, err
			}
			*started = true
			continue
		case bourse.StateFailed:
			return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has failed%s: start or update it", m.ID, exit(&m))
		case bourse.StateDestroying, bourse.StateDestroyed:
			return m, state.ErrNoMachine
		}
		if m, err = r.Machines.AwaitMachine(ctx, m.ID, func(now *bourse.Machine) bool { return now.State != m.State }); err != nil {
			return m, err
		}
	}
}

// loops reports whether a restarting machine's program ends shortly after each start.
func loops(m *bourse.Machine) bool {
	ends := m.Boot.Restarts // the last is the end that this restart follows
	n := len(ends)
	return n >= crashLoop && ends[n-1].Sub(ends[n-2])-bourse.RestartBackoff(n-1) < shortRun
}

// start starts a machine, unless it has moved on by itself.
func (r *Reach) start(ctx context.Context, m *bourse.Machine) error {
	ctx, span := trace.Start(ctx, "start")
	err := r.Start(ctx, m.ID)
	span.End(err)
	if bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
		if now, readErr := r.Machines.Machine(ctx, m.ID); readErr == nil && now.State != m.State && now.State != bourse.StateFailed {
			return nil
		}
	}
	return err
}

func idle(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, and was not to be started", m.ID, m.State)
}

// exit says how the machine's last program ended.
func exit(m *bourse.Machine) string {
	switch e := m.Boot.Exit; {
	case e == nil:
		return ""
	case e.Error != "":
		return ": " + e.Error
	case e.Signal != 0:
		return fmt.Sprintf(": signal %d", e.Signal)
	default:
		return fmt.Sprintf(": exit code %d", e.Code)
	}
}

// Between two attempts to connect a part of the time passes that has passed
// already: what comes up within a millisecond is not kept waiting for another,
// and what takes a minute costs no processor.
const (
	pausePart    = 256
	soonestAgain = 250 * time.Microsecond
	latestAgain  = 25 * time.Millisecond
	// lookAgain is how often it is seen whether the machine still runs.
	lookAgain = 20 * time.Millisecond
	// An attempt that gets no answer, since the machine's network has only just
	// come up, would be repeated by TCP after a second.
	attempt = 50 * time.Millisecond
)

// accepting returns when the machine accepts connections on the port that a
// service names: errMoved when it does not run any more.
func (r *Reach) accepting(ctx context.Context, m *bourse.Machine, service int) error {
	port, err := admit.PortOf(m, service)
	if err != nil {
		return err
	}
	begin := time.Now()
	looked := begin
	for {
		err := r.connect(ctx, m, port, attempt+time.Since(begin))
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case bourse.CodeOf(err) != bourse.CodeUnavailable:
			return err
		}
		if time.Since(looked) >= lookAgain {
			looked = time.Now()
			now, err := r.Machines.Machine(ctx, m.ID)
			if err != nil {
				return err
			}
			if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
				return errMoved
			}
		}
		pause := time.NewTimer(min(max(time.Since(begin)/pausePart, soonestAgain), latestAgain))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// connect tries once.
func (r *Reach) connect(ctx context.Context, m *bourse.Machine, port int, limit time.Duration) error {
	once, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := r.Dial(once, m, port)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return nil
	}
	if once.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "machine %s did not answer on port %d", m.ID, port)
	}
	return err
}

func noWay(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is: there is no way to its ports", m.ID)
}
