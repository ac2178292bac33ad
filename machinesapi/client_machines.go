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

// Create places an order for a machine and waits until it is filled or
// refused. A non-empty order id makes a repetition find the first call's
// machine. Codes: invalid, not_found (the app), already_exists (the name),
// insufficient_capacity (the [ReplyError] has the refusals and the order id),
// timeout (repeat with the same order id).
func (c *Client) Create(ctx context.Context, app bourse.AppName, in CreateMachine, order bourse.OrderID) (Created, error) {
	header := http.Header{}
	if order != "" {
		header.Set(HeaderOrderID, string(order))
	}
	var out Created
	reply, err := c.do(ctx, call{method: http.MethodPost, path: path("apps", string(app), "machines"), header: header, in: in, out: &out.Machine})
	if reply != nil {
		out.Timing = parseTiming(reply.Get(HeaderServerTiming))
		if id := reply.Get(HeaderOrderID); id != "" {
			out.OrderID = bourse.OrderID(id)
		}
	}
	return out, err
}

// parseTiming reads the durations of a Server-Timing header.
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

// Quote returns the decision that an order would have, without placing it. The decision's
// outcome is "quoted" when a worker would fill it, "refused" when none
// would. Codes: invalid, not_found (the app).
func (c *Client) Quote(ctx context.Context, app bourse.AppName, in CreateMachine) (Quoted, error) {
	var out Quoted
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("apps", string(app), "quotes"), in: in, out: &out})
	return out, err
}

// Update makes a new version of a machine, and waits until it has started; nonce
// is that of its lease, if it has one. Codes: invalid, not_found, conflict (the
// lease, its version, or another update), insufficient_capacity,
// failed_precondition (its state, its image, or the new version did not start).
func (c *Client) Update(ctx context.Context, app bourse.AppName, id bourse.MachineID, in UpdateMachine, nonce string) (Machine, error) {
	var out Machine
	_, err := c.do(ctx, call{method: http.MethodPost, path: machinePath(app, id), header: nonceHeader(nonce), in: in, out: &out})
	return out, err
}

// Versions returns a machine's versions, the newest first, as far as its worker
// keeps them. Codes: not_found.
func (c *Client) Versions(ctx context.Context, app bourse.AppName, id bourse.MachineID) ([]Version, error) {
	var out []Version
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "versions"), out: &out})
	return out, err
}

// ListMachines selects the machines of a list.
type ListMachines struct {
	Deleted  bool // also destroyed ones, while they are remembered
	Leases   bool
	Summary  bool
	Region   bourse.Region
	Worker   bourse.WorkerID
	States   []bourse.State
	Metadata map[string]string
}

func (l ListMachines) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"include_deleted": l.Deleted, "include_leases": l.Leases, "summary": l.Summary} {
		if on {
			q.Set(name, "true")
		}
	}
	if l.Region != "" {
		q.Set("region", string(l.Region))
	}
	if l.Worker != "" {
		q.Set("worker", string(l.Worker))
	}
	for _, s := range l.States {
		q.Add("state", string(s))
	}
	for k, v := range l.Metadata {
		q.Set("metadata."+k, v)
	}
	return q
}

// Machines lists an app's machines, or without one those of all apps that the
// token may use, oldest first, and the workers that did not answer: their machines
// are missing. Codes: invalid, not_found (the app).
func (c *Client) Machines(ctx context.Context, app bourse.AppName, want ListMachines) ([]Machine, []bourse.WorkerID, error) {
	var out []Machine
	where := path("machines")
	if app != "" {
		where = path("apps", string(app), "machines")
	}
	reply, err := c.do(ctx, call{method: http.MethodGet, path: where, query: want.query(), out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out, silentOf(reply), nil
}

// Machine finds a machine, with its latest events; destroyed ones too while
// they are remembered. Codes: not_found.
func (c *Client) Machine(ctx context.Context, app bourse.AppName, id bourse.MachineID) (Machine, error) {
	var out Machine
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id), query: url.Values{"include_leases": {"true"}}, out: &out})
	return out, err
}

// MaxEvents bounds the number of events in one reply.
const MaxEvents = 1000

// Events returns a machine's latest events, newest first; limit 0 means 20, and
// at most MaxEvents. Codes: invalid, not_found.
func (c *Client) Events(ctx context.Context, app bourse.AppName, id bourse.MachineID, limit int) ([]Event, error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var out []Event
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "events"), query: query, out: &out})
	return out, err
}

// Wait blocks until the machine is in one of the wanted states. Codes:
// invalid, not_found (no such machine, or destroyed while another state is
// waited for), conflict (its version was replaced), failed_precondition,
// timeout (not there yet: wait again).
func (c *Client) Wait(ctx context.Context, app bourse.AppName, id bourse.MachineID, want WaitMachine) (WaitReply, error) {
	query := url.Values{}
	for _, s := range want.States {
		query.Add("state", s)
	}
	if want.Timeout > 0 {
		query.Set("timeout", time.Duration(want.Timeout).String())
	}
	if want.Version != "" {
		query.Set("version", string(want.Version))
	}
	if want.After != "" {
		query.Set("from_event_id", string(want.After))
	}
	var out WaitReply
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "wait"), query: query, out: &out})
	return out, err
}

func machinePath(app bourse.AppName, id bourse.MachineID, more ...string) string {
	return path(append([]string{"apps", string(app), "machines", string(id)}, more...)...)
}
