package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

var (
	routeStart    = routeOf(PathStart)
	routeStop     = routeOf(PathStop)
	routeRestart  = routeOf(PathRestart)
	routeDestroy  = routeOf(PathDestroy)
	routeCordon   = routeOf(PathCordon)
	routeUncordon = routeOf(PathUncordon)
	routeSignal   = routeOf(PathSignal)
	routeRelease  = routeOf(PathRelease)
)

func (c *Client) act(ctx context.Context, to bourse.Member, r route, id bourse.MachineID, act Act) (ActReply, error) {
	return exchange[ActReply](ctx, c, to, ask{route: r, id: string(id), body: act})
}

// Start starts a machine and answers once it has started.
func (c *Client) Start(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeStart, id, act)
}

// Stop asks a machine to end and answers before it has.
func (c *Client) Stop(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeStop, id, act)
}

// Restart stops a machine and answers once it has started again.
func (c *Client) Restart(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeRestart, id, act)
}

// Destroy removes a machine and answers once it is gone.
func (c *Client) Destroy(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeDestroy, id, act)
}

// Cordon takes a machine out of service registration.
func (c *Client) Cordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeCordon, id, act)
}

// Uncordon puts a machine back into service registration.
func (c *Client) Uncordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeUncordon, id, act)
}

// Signal sends act.Signal to a machine's program.
func (c *Client) Signal(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeSignal, id, act)
}

// Release ends the lease whose nonce act has.
func (c *Client) Release(ctx context.Context, to bourse.Member, id bourse.MachineID, act Act) (ActReply, error) {
	return c.act(ctx, to, routeRelease, id, act)
}
