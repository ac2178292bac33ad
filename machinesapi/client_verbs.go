package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
)

// The verbs take the nonce of the machine's lease, "" when the caller holds
// none. Besides those named, each may return not_found and conflict (another
// caller holds the lease).

func act(ctx context.Context, c *Client, app bourse.AppName, id bourse.MachineID, verb, nonce string, k call) error {
	k.method, k.path = http.MethodPost, machinePath(app, id, verb)
	k.header = nonceHeader(nonce)
	_, err := c.do(ctx, k)
	return err
}

func nonceHeader(nonce string) http.Header {
	h := http.Header{}
	if nonce != "" {
		h.Set(HeaderNonce, nonce)
	}
	return h
}

// Start starts a machine that does not run. Codes: failed_precondition,
// insufficient_capacity (its worker is full).
func (c *Client) Start(ctx context.Context, app bourse.AppName, id bourse.MachineID, nonce string) (StartReply, error) {
	var out StartReply
	err := act(ctx, c, app, id, "start", nonce, call{out: &out})
	return out, err
}

// Stop asks a machine to end and does not wait for it. Codes: invalid,
// failed_precondition.
func (c *Client) Stop(ctx context.Context, app bourse.AppName, id bourse.MachineID, in StopMachine, nonce string) error {
	return act(ctx, c, app, id, "stop", nonce, call{in: in})
}

// Suspend freezes a machine where it is, and Start lets it go on. Codes:
// failed_precondition (its host cannot), unavailable.
func (c *Client) Suspend(ctx context.Context, app bourse.AppName, id bourse.MachineID, nonce string) error {
	return act(ctx, c, app, id, "suspend", nonce, call{})
}

// Restart stops a machine and starts it again. Codes: invalid,
// failed_precondition, insufficient_capacity.
func (c *Client) Restart(ctx context.Context, app bourse.AppName, id bourse.MachineID, in RestartMachine, nonce string) error {
	query := url.Values{}
	if in.ForceStop {
		query.Set("force_stop", "true")
	}
	if in.Signal != "" {
		query.Set("signal", string(in.Signal))
	}
	if in.Timeout > 0 {
		query.Set("timeout", time.Duration(in.Timeout).String())
	}
	return act(ctx, c, app, id, "restart", nonce, call{query: query})
}

// Signal sends a signal to the machine's main process. Codes: invalid,
// failed_precondition.
func (c *Client) Signal(ctx context.Context, app bourse.AppName, id bourse.MachineID, signal bourse.Signal) error {
	return act(ctx, c, app, id, "signal", "", call{in: SignalMachine{Signal: signal}})
}

// Exec runs a command next to the machine's program until it ends. Codes:
// invalid (also a command that does not exist), failed_precondition.
func (c *Client) Exec(ctx context.Context, app bourse.AppName, id bourse.MachineID, in ExecMachine) (ExecReply, error) {
	var out ExecReply
	err := act(ctx, c, app, id, "exec", "", call{in: in, out: &out})
	return out, err
}

// Cordon takes a machine's services out of routing, or brings them back.
func (c *Client) Cordon(ctx context.Context, app bourse.AppName, id bourse.MachineID, out bool, nonce string) error {
	verb := "uncordon"
	if out {
		verb = "cordon"
	}
	return act(ctx, c, app, id, verb, nonce, call{})
}

// Destroy removes a machine for good and waits until it is gone. Codes:
// failed_precondition (it runs, and in.Force is not set).
func (c *Client) Destroy(ctx context.Context, app bourse.AppName, id bourse.MachineID, in DestroyMachine, nonce string) error {
	query := url.Values{}
	if in.Force {
		query.Set("force", "true")
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: machinePath(app, id), query: query, header: nonceHeader(nonce)})
	return err
}

// Usage returns what a machine uses now. Codes: not_found, failed_precondition
// (it does not run).
func (c *Client) Usage(ctx context.Context, app bourse.AppName, id bourse.MachineID) (Usage, error) {
	var out Usage
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "usage"), out: &out})
	return out, err
}

// Processes lists the processes of a machine, its main one first. Codes: not_found,
// failed_precondition (it does not run, or not where its worker is).
func Processes(ctx context.Context, c *Client, app bourse.AppName, id bourse.MachineID) ([]bourse.Process, error) {
	var out []bourse.Process
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "ps"), out: &out})
	return out, err
}
