// Package reach makes a worker's machines ready for proxies and clients. To use a machine, a proxy makes a call, and
// gets the machine's address once the machine accepts connections. The machine counts as in use during the call and for
// a few seconds after it. A client can also wait until a machine has reached one of several states.
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

// Limits on the values in a request.
const (
	maxWait     = 5 * time.Minute // long enough to pull an image
	maxTTL      = time.Minute
	maxRequests = 1 << 20
)

// If a program has been restarted at least crashLoopRestarts times and its last run was shorter than shortRun, it is
// expected to exit again, so requests for it fail immediately. Requests still wait for programs that crash only
// occasionally.
const (
	crashLoopRestarts = 3
	shortRun          = 10 * time.Second
)

// Machines reads the records of a worker's machines.
type Machines interface {
	// Machine reads a machine. It returns CodeNotFound if the machine has no record.
	Machine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error)
	// AwaitMachine waits until wanted returns true for the machine, which it reads again
	// after each change.
	AwaitMachine(ctx context.Context, id bourse.MachineID, wanted func(*bourse.Machine) bool) (bourse.Machine, error)
}

// Uses tracks which machines are in use.
type Uses interface {
	// Use marks a machine as in use for the duration ttl. user names the user, and requests is the number of requests
	// that the user has in progress. If the worker had already decided to stop the machine, the machine's record
	// reflects that decision by the time Use returns.
	Use(id bourse.MachineID, user string, requests int, ttl time.Duration)
	// Begin marks a machine as in use until done is called.
	Begin(id bourse.MachineID) (done func())
	// Others returns the total number of requests that users other than user have in progress.
	Others(id bourse.MachineID, user string) int
}

// Config configures a Reach.
type Config struct {
	Machines Machines
	// Start starts or resumes a machine, and returns once it has started.
	Start func(ctx context.Context, id bourse.MachineID) error
	// Dial connects to a port of a running machine. It returns CodeUnavailable if nothing listens on the port yet.
	Dial func(ctx context.Context, m *bourse.Machine, port int) (net.Conn, error)
	Uses Uses   // nil if uses are not counted
	Host string // identifies the worker's host; see package samehost; if empty, proxies always use the tunnel
}

// Reach serves requests to use a worker's machines. Its methods are safe for concurrent
// use.
type Reach struct{ Config }

// New returns a Reach.
func New(c Config) *Reach { return &Reach{c} }

// Use marks a machine as in use. If req.Wait is not 0, Use also waits until the machine accepts connections. If the
// machine is stopped or suspended and req.Start is set, Use starts it first.
//
// Errors: not_found if the machine does not exist; failed_precondition if the machine is not running and the request
// does not start it, or if it cannot be started, does not have the requested port, or is in a crash loop; timeout if it
// did not accept connections within req.Wait; unavailable if it was stopped during the wait; and any error that
// Config.Start returns.
func (r *Reach) Use(ctx context.Context, req fabric.UseRequest) (fabric.UseReply, error) {
	if err := validate(&req); err != nil {
		return fabric.UseReply{}, err
	}
	m, err := r.liveMachine(ctx, req.Machine) // checked before Use, which would also record an id that does not exist
	if err != nil {
		return fabric.UseReply{}, err
	}
	if m.Config.ImageKind() == bourse.PollerImage {
		return fabric.UseReply{}, unreachable(&m)
	}
	r.use(&req)
	if req.Wait == 0 {
		if m, err = r.liveMachine(ctx, req.Machine); err != nil { // read again after Use; see Uses.Use
			return fabric.UseReply{}, err
		}
		return r.reply(&m, &req), nil
	}
	if r.Uses != nil { // mark the machine as in use during the wait, which may be longer than the TTL
		defer r.Uses.Begin(req.Machine)()
	}
	if m, err = r.ready(ctx, &req); err != nil {
		return fabric.UseReply{}, err
	}
	r.use(&req) // restart the TTL
	return r.reply(&m, &req), nil
}

func validate(req *fabric.UseRequest) error {
	req.TTL = min(req.TTL, bourse.Duration(maxTTL))
	req.Wait = min(req.Wait, bourse.Duration(maxWait))
	req.Requests = min(req.Requests, maxRequests)
	switch {
	case req.Port < 0 || req.Port > 65535:
		return bourse.Errorf(bourse.CodeInvalid, "invalid port %d: use 1 to 65535, or 0 for the machine's $PORT", req.Port)
	case req.TTL < 0 || req.Wait < 0 || req.Requests < 0:
		return bourse.Errorf(bourse.CodeInvalid, "invalid use: times and requests must be 0 or more")
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

// liveMachine reads a machine. It returns CodeNotFound if the machine is destroyed or being
// destroyed.
func (r *Reach) liveMachine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	m, err := r.Machines.Machine(ctx, id)
	if err == nil && (m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying) {
		err = state.ErrNoMachine
	}
	return m, err
}

var (
	errWaitLimit = errors.New("the wait timed out")
	errMoved     = errors.New("the machine is no longer running")
)

// ready waits until a machine is running and accepts connections, and returns the machine.
func (r *Reach) ready(ctx context.Context, req *fabric.UseRequest) (m bourse.Machine, err error) {
	wait := time.Duration(req.Wait)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaitLimit)
	defer cancel()
	for started := false; ; {
		if m, err = r.running(ctx, req, &started); err == nil {
			err = r.awaitPort(ctx, &m, req.Port)
		}
		switch {
		case errors.Is(err, errMoved):
		case err != nil && errors.Is(context.Cause(ctx), errWaitLimit):
			return m, errNotReady(&m, req, wait)
		default:
			return m, err
		}
	}
}

func (r *Reach) awaitPort(ctx context.Context, m *bourse.Machine, port int) error {
	ctx, span := trace.Start(ctx, "accept")
	err := r.pollPort(ctx, m, port)
	span.End(err)
	return err
}

func errNotReady(m *bourse.Machine, req *fabric.UseRequest, wait time.Duration) error {
	if port, err := admit.PortOf(m, req.Port); m.State == bourse.StateStarted && err == nil {
		return bourse.Errorf(bourse.CodeTimeout, "machine %s is running, but nothing accepted connections on its port %d within %s", req.Machine, port, wait)
	}
	return bourse.Errorf(bourse.CodeTimeout, "machine %s did not start within %s: it is %s", req.Machine, wait, m.State)
}

// running waits until the machine has started, and returns it. If the machine is stopped or suspended, running starts
// it and sets *started, provided that the request allows a start and *started is false.
func (r *Reach) running(ctx context.Context, req *fabric.UseRequest, started *bool) (bourse.Machine, error) {
	for {
		m, err := r.liveMachine(ctx, req.Machine)
		if err != nil {
			return m, err
		}
		switch m.State {
		case bourse.StateStarted:
			return m, nil
		case bourse.StateRestarting:
			if inCrashLoop(&m) {
				return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is in a crash loop: its program was restarted %d times and exited again%s",
					m.ID, len(m.Boot.Restarts)-1, exit(&m))
			}
		case bourse.StateCreated, bourse.StateStarting, bourse.StateReplacing:
		case bourse.StateStopping, bourse.StateSuspending:
			if !req.Start {
				return m, errNotStarted(&m)
			}
		case bourse.StateStopped, bourse.StateSuspended:
			switch {
			case *started && m.Boot.Requested:
				return m, bourse.Errorf(bourse.CodeUnavailable, "machine %s was stopped while a request waited for it", m.ID)
			case *started:
				return m, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s was started, but its program exited before it accepted connections%s", m.ID, exit(&m))
			case !req.Start:
				return m, errNotStarted(&m)
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

// inCrashLoop reports whether a restarting machine is in a crash loop, as defined by crashLoopRestarts
// and shortRun.
func inCrashLoop(m *bourse.Machine) bool {
	ends := m.Boot.Restarts // the last element is the exit that led to this restart
	n := len(ends)
	return n >= crashLoopRestarts && ends[n-1].Sub(ends[n-2])-bourse.RestartBackoff(n-1) < shortRun
}

// start starts a machine. It also returns nil if the start failed only because the machine's state had changed in the
// meantime.
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

func errNotStarted(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, and the request does not start it", m.ID, m.State)
}

// exit describes how a machine's program last exited. The text is appended to error messages.
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

// The pause between two connection attempts is proportional to the time since the first attempt. A connection to a
// program that listens within a millisecond therefore succeeds quickly, and waiting for a program that takes a minute
// uses little CPU time.
const (
	pauseDivisor = 256
	minPause     = 250 * time.Microsecond
	maxPause     = 25 * time.Millisecond
	// stateInterval is the interval at which the machine's state is checked.
	stateInterval = 20 * time.Millisecond
	// minAttemptTime is the minimum time limit for a connection attempt. If the machine's network was created only a
	// moment ago, the first packet may be lost, and TCP would retransmit it only after a second.
	minAttemptTime = 50 * time.Millisecond
)

// pollPort waits until the machine accepts connections on a service's port. It returns errMoved if the machine is no
// longer running.
func (r *Reach) pollPort(ctx context.Context, m *bourse.Machine, service int) error {
	port, err := admit.PortOf(m, service)
	if err != nil {
		return err
	}
	begin := time.Now()
	looked := begin
	for {
		err := r.connect(ctx, m, port, minAttemptTime+time.Since(begin))
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case bourse.CodeOf(err) != bourse.CodeUnavailable:
			return err
		}
		if time.Since(looked) >= stateInterval {
			looked = time.Now()
			now, err := r.Machines.Machine(ctx, m.ID)
			if err != nil {
				return err
			}
			if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
				return errMoved
			}
		}
		pause := time.NewTimer(min(max(time.Since(begin)/pauseDivisor, minPause), maxPause))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// connect makes one attempt to connect to a port of the machine, and then closes the connection.
func (r *Reach) connect(ctx context.Context, m *bourse.Machine, port int, limit time.Duration) error {
	once, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := r.Dial(once, m, port)
	if err == nil {
		_ = conn.Close() // an error does not matter, because nothing was sent
		return nil
	}
	if once.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "machine %s did not answer on port %d", m.ID, port)
	}
	return err
}

func unreachable(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs on its poller's host, where its ports cannot be reached", m.ID)
}
