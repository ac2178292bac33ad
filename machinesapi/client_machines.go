package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Create places an order for a machine and waits until it is filled or refused. If order is not
// empty, calling Create again with the same order returns the same machine. Errors: invalid,
// not_found (the app), already_exists (the name), insufficient_capacity (the [ReplyError] contains
// the refusals and the order ID), timeout (repeat the call with the same order ID).
func (c *Client) Create(ctx context.Context, app bourse.AppName, in CreateMachine, order bourse.OrderID) (CreatedMachine, error) {
	var out CreatedMachine
	reply, err := c.do(ctx, call{method: http.MethodPost, path: path("apps", string(app), "machines"), header: header(HeaderOrderID, string(order)), in: in}, &out.Machine)
	if reply != nil {
		out.Timing = parseTiming(reply.Get(HeaderServerTiming))
		if id := reply.Get(HeaderOrderID); id != "" {
			out.OrderID = bourse.OrderID(id)
		}
	}
	return out, err
}

// parseTiming parses the durations in a Server-Timing header.
func parseTiming(header string) Timing {
	out := Timing{}
	for part := range strings.SplitSeq(header, ",") {
		name, dur, ok := strings.Cut(strings.TrimSpace(part), ";dur=")
		ms, err := strconv.ParseFloat(dur, 64)
		if ok && err == nil {
			out[name] = time.Duration(ms * float64(time.Millisecond))
		}
	}
	return out
}

// Quote returns the decision that the broker would make about an order, without placing the order. The decision's
// outcome is "quoted" if a worker would fill the order, and "refused" otherwise. Errors: invalid, not_found (the app).
func (c *Client) Quote(ctx context.Context, app bourse.AppName, in CreateMachine) (QuoteReply, error) {
	return ask[QuoteReply](ctx, c, call{method: http.MethodPost, path: path("apps", string(app), "quotes"), in: in})
}

// Update creates a new version of a machine and waits until it has started. nonce is the nonce of the machine's lease,
// or "" if the machine has none. Errors: invalid, not_found, conflict (another caller holds the lease, the current
// version is not in.CurrentVersion, or another update is in progress), insufficient_capacity, failed_precondition (the
// machine's state or the image does not permit the update, or the new version did not start).
func (c *Client) Update(ctx context.Context, app bourse.AppName, id bourse.MachineID, in UpdateMachine, nonce string) (Machine, error) {
	return ask[Machine](ctx, c, call{method: http.MethodPost, path: machinePath(app, id), header: header(HeaderNonce, nonce), in: in})
}

// Versions returns the versions of a machine that its worker still has, newest first. Errors: not_found.
func (c *Client) Versions(ctx context.Context, app bourse.AppName, id bourse.MachineID) ([]Version, error) {
	return ask[[]Version](ctx, c, call{method: http.MethodGet, path: machinePath(app, id, "versions")})
}

// ListMachines specifies which machines to list.
type ListMachines struct {
	Deleted  bool // include destroyed machines that their workers still have records of
	Leases   bool
	Summary  bool
	Region   bourse.Region
	Worker   bourse.WorkerID
	States   []bourse.State
	Metadata map[string]string
}

func (l ListMachines) query() url.Values {
	q := query("include_deleted", boolParam(l.Deleted), "include_leases", boolParam(l.Leases), "summary", boolParam(l.Summary), "region", string(l.Region), "worker", string(l.Worker))
	for _, s := range l.States {
		q.Add("state", string(s))
	}
	for k, v := range l.Metadata {
		q.Set("metadata."+k, v)
	}
	return q
}

// Machines lists an app's machines, oldest first. If app is empty, it lists the machines of all
// apps that the token may use. It also returns the workers that did not answer, whose machines may
// be missing. Errors: invalid, not_found (the app).
func (c *Client) Machines(ctx context.Context, app bourse.AppName, want ListMachines) ([]Machine, []bourse.WorkerID, error) {
	where := path("machines")
	if app != "" {
		where = path("apps", string(app), "machines")
	}
	return list[[]Machine](ctx, c, call{method: http.MethodGet, path: where, query: want.query()})
}

// Machine returns a machine with its latest events. A destroyed machine is returned for as long as its worker keeps the
// record. Errors: not_found.
func (c *Client) Machine(ctx context.Context, app bourse.AppName, id bourse.MachineID) (Machine, error) {
	return ask[Machine](ctx, c, call{method: http.MethodGet, path: machinePath(app, id), query: url.Values{"include_leases": {"true"}}})
}

// MaxEvents is the maximum number of events in one reply.
const MaxEvents = 1000

// Events returns the latest events of a machine, newest first. limit must not exceed MaxEvents; 0
// means 20. Errors: invalid, not_found.
func (c *Client) Events(ctx context.Context, app bourse.AppName, id bourse.MachineID, limit int) ([]Event, error) {
	return ask[[]Event](ctx, c, call{method: http.MethodGet, path: machinePath(app, id, "events"), query: query("limit", positive(limit))})
}

// Wait blocks until the machine is in one of the given states. Errors: invalid, not_found (the
// machine does not exist, or was destroyed while the call was waiting for another state), conflict
// (its version was replaced), failed_precondition, timeout (the machine is not in any of the
// states yet: wait again).
func (c *Client) Wait(ctx context.Context, app bourse.AppName, id bourse.MachineID, want WaitMachine) (WaitReply, error) {
	q := query("timeout", duration(want.Timeout), "version", string(want.Version), "from_event_id", string(want.After))
	q["state"] = want.States
	return ask[WaitReply](ctx, c, call{method: http.MethodGet, path: machinePath(app, id, "wait"), query: q})
}

func machinePath(app bourse.AppName, id bourse.MachineID, more ...string) string {
	return path(append([]string{"apps", string(app), "machines", string(id)}, more...)...)
}

// The following methods have a parameter nonce: the nonce of the machine's lease, or "" if the caller does not hold it.
// In addition to the errors that they list, they may return not_found, and conflict if another caller holds the lease.

func act(app bourse.AppName, id bourse.MachineID, verb, nonce string, in any) call {
	return call{method: http.MethodPost, path: machinePath(app, id, verb), header: header(HeaderNonce, nonce), in: in}
}

// Start starts a machine that is not running. Errors: failed_precondition, insufficient_capacity
// (the machine's worker is full).
func (c *Client) Start(ctx context.Context, app bourse.AppName, id bourse.MachineID, nonce string) (StartReply, error) {
	return ask[StartReply](ctx, c, act(app, id, "start", nonce, nil))
}

// Stop asks a machine's worker to stop the machine, and returns before the machine has stopped. Errors: invalid,
// failed_precondition.
func (c *Client) Stop(ctx context.Context, app bourse.AppName, id bourse.MachineID, in StopMachine, nonce string) error {
	return c.run(ctx, act(app, id, "stop", nonce, in))
}

// Suspend freezes a machine. Start resumes it. Errors: failed_precondition (the machine's host
// does not support this), unavailable.
func (c *Client) Suspend(ctx context.Context, app bourse.AppName, id bourse.MachineID, nonce string) error {
	return c.run(ctx, act(app, id, "suspend", nonce, nil))
}

// Restart stops a machine and starts it again. Errors: invalid, failed_precondition, insufficient_capacity.
func (c *Client) Restart(ctx context.Context, app bourse.AppName, id bourse.MachineID, in RestartMachine, nonce string) error {
	k := act(app, id, "restart", nonce, nil)
	k.query = query("force_stop", boolParam(in.ForceStop), "signal", string(in.Signal), "timeout", duration(in.Timeout))
	return c.run(ctx, k)
}

// Signal sends a signal to the machine's main process. Errors: invalid, failed_precondition.
func (c *Client) Signal(ctx context.Context, app bourse.AppName, id bourse.MachineID, signal bourse.Signal) error {
	return c.run(ctx, act(app, id, "signal", "", SignalMachine{Signal: signal}))
}

// Exec runs a command in a machine, alongside its program, and waits until the command exits.
// Errors: invalid (for example, the command does not exist), failed_precondition.
func (c *Client) Exec(ctx context.Context, app bourse.AppName, id bourse.MachineID, in ExecMachine) (ExecReply, error) {
	return ask[ExecReply](ctx, c, act(app, id, "exec", "", in))
}

// Cordon excludes a machine's services from routing if out is true, and includes them again if out
// is false.
func (c *Client) Cordon(ctx context.Context, app bourse.AppName, id bourse.MachineID, out bool, nonce string) error {
	verb := "uncordon"
	if out {
		verb = "cordon"
	}
	return c.run(ctx, act(app, id, verb, nonce, nil))
}

// Destroy destroys a machine and waits until it is destroyed. Errors: failed_precondition (the
// machine is running, and in.Force is not set).
func (c *Client) Destroy(ctx context.Context, app bourse.AppName, id bourse.MachineID, in DestroyMachine, nonce string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: machinePath(app, id), query: query("force", boolParam(in.Force)), header: header(HeaderNonce, nonce)})
}

// Usage returns a machine's current resource usage. Errors: not_found, failed_precondition (the
// machine is not running).
func (c *Client) Usage(ctx context.Context, app bourse.AppName, id bourse.MachineID) (Usage, error) {
	return ask[Usage](ctx, c, call{method: http.MethodGet, path: machinePath(app, id, "usage")})
}

// Processes lists a machine's processes, starting with the main process. Errors: not_found,
// failed_precondition (the machine is not running, or its program runs on a different host than its
// worker).
func Processes(ctx context.Context, c *Client, app bourse.AppName, id bourse.MachineID) ([]bourse.Process, error) {
	return ask[[]bourse.Process](ctx, c, call{method: http.MethodGet, path: machinePath(app, id, "ps")})
}

// MachineLease is a client for one machine's lease.
type MachineLease struct {
	Client  *Client
	App     bourse.AppName
	Machine bourse.MachineID
}

// Lease returns a client for a machine's lease.
func (c *Client) Lease(app bourse.AppName, id bourse.MachineID) MachineLease {
	return MachineLease{c, app, id}
}

// Acquire acquires a machine's lease, or extends it if nonce is the lease's current nonce. A TTL of 0 means 60 s.
// Errors: invalid, not_found, conflict (another caller holds the lease).
func (l MachineLease) Acquire(ctx context.Context, in LeaseRequest, nonce string) (Lease, error) {
	out, err := ask[LeaseEnvelope](ctx, l.Client, call{method: http.MethodPost, path: machinePath(l.App, l.Machine, "lease"), header: header(HeaderNonce, nonce), in: in})
	return out.Data, err
}

// Get returns a machine's lease. Errors: not_found (the machine or the lease).
func (l MachineLease) Get(ctx context.Context) (Lease, error) {
	out, err := ask[LeaseEnvelope](ctx, l.Client, call{method: http.MethodGet, path: machinePath(l.App, l.Machine, "lease")})
	return out.Data, err
}

// Release releases a machine's lease. Errors: not_found (the machine or the lease), conflict (nonce
// is not the current one).
func (l MachineLease) Release(ctx context.Context, nonce string) error {
	return l.Client.run(ctx, call{method: http.MethodDelete, path: machinePath(l.App, l.Machine, "lease"), header: header(HeaderNonce, nonce)})
}

// MachineMetadata is a client for one machine's metadata.
type MachineMetadata struct {
	Client  *Client
	App     bourse.AppName
	Machine bourse.MachineID
}

// Metadata returns a client for a machine's metadata.
func (c *Client) Metadata(app bourse.AppName, id bourse.MachineID) MachineMetadata {
	return MachineMetadata{c, app, id}
}

// All returns all of a machine's metadata. Errors: not_found.
func (m MachineMetadata) All(ctx context.Context) (map[string]string, error) {
	return ask[map[string]string](ctx, m.Client, call{method: http.MethodGet, path: machinePath(m.App, m.Machine, "metadata")})
}

// Patch changes several keys at once, without creating a new version of the machine. Errors: invalid, not_found,
// failed_precondition (in.Version is not the machine's version).
func (m MachineMetadata) Patch(ctx context.Context, in MetadataPatch) error {
	return m.Client.run(ctx, call{method: http.MethodPatch, path: machinePath(m.App, m.Machine, "metadata"), in: in})
}

// Get returns the value of one key. Errors: not_found (the machine or the key).
func (m MachineMetadata) Get(ctx context.Context, key string) (string, error) {
	out, err := ask[MetadataValue](ctx, m.Client, call{method: http.MethodGet, path: machinePath(m.App, m.Machine, "metadata", key)})
	return out.Value, err
}

// Set sets one key. Errors: invalid, not_found.
func (m MachineMetadata) Set(ctx context.Context, key, value string) error {
	return m.Client.run(ctx, call{method: http.MethodPost, path: machinePath(m.App, m.Machine, "metadata", key), in: MetadataValue{Value: value}})
}

// Delete removes a key if it exists. Errors: not_found (the machine).
func (m MachineMetadata) Delete(ctx context.Context, key string) error {
	return m.Client.run(ctx, call{method: http.MethodDelete, path: machinePath(m.App, m.Machine, "metadata", key)})
}

// LogQuery specifies which lines of a machine's output to return.
type LogQuery struct {
	After  string    // only lines after this position; cannot be combined with Since or Tail
	Since  time.Time // only lines since this time; zero: from the beginning
	Tail   int       // number of most recent lines to return; 0: all; negative: none, so that Follow returns only new lines
	Follow bool      // continue with new lines until ctx is done or the machine is destroyed
}

// Logs calls line, from the calling goroutine, for each line of a machine's output, oldest first.
// If line returns an error, Logs closes the stream and returns that error. Errors: invalid,
// not_found, unavailable (the stream broke).
func (c *Client) Logs(ctx context.Context, app bourse.AppName, id bourse.MachineID, want LogQuery, line func(LogLine) error) error {
	q := query("after", want.After, "follow", boolParam(want.Follow))
	if !want.Since.IsZero() {
		q.Set("since", want.Since.UTC().Format(time.RFC3339Nano))
	}
	if want.Tail != 0 {
		q.Set("tail", strconv.Itoa(want.Tail))
	}
	k := call{method: http.MethodGet, path: machinePath(app, id, "logs"), query: q}
	resp, err := c.stream(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for l, err := range linesOf[LogLine](resp.Body) {
		switch {
		case err != nil:
			return c.noReply(ctx, k, err)
		case l.Error != nil:
			return &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error), Err: &ReplyError{
				Status: resp.StatusCode, RequestID: resp.Header.Get(HeaderRequestID),
			}}
		}
		if err := line(l); err != nil {
			return err
		}
	}
	return nil
}
