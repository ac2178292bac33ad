package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

var (
	routeMachines = routeOf(PathMachines)
	routeMachine  = routeOf(PathMachine)
	routeExec     = routeOf(PathExec)
	routeWait     = routeOf(PathWait)
	routeEvents   = routeOf(PathEvents)
	routeLease    = routeOf(PathLease)
	routeMetadata = routeOf(PathMetadata)
)

// Machines lists the worker's machines that q selects.
func (c *Client) Machines(ctx context.Context, to bourse.Member, q MachinesQuery) ([]bourse.Machine, error) {
	return exchange[[]bourse.Machine](ctx, c, to, ask{route: routeMachines, query: q.values()})
}

// Machine returns a machine with its latest events.
func (c *Client) Machine(ctx context.Context, to bourse.Member, id bourse.MachineID) (bourse.Machine, error) {
	return exchange[bourse.Machine](ctx, c, to, ask{route: routeMachine, id: string(id)})
}

// Exec runs a command next to the machine's program, until it ends.
func (c *Client) Exec(ctx context.Context, to bourse.Member, id bourse.MachineID, exec ExecRequest) (ExecReply, error) {
	return exchange[ExecReply](ctx, c, to, ask{route: routeExec, id: string(id), body: exec})
}

// Wait blocks until the machine is in one of the states of q, CodeTimeout
// when its time runs out.
func (c *Client) Wait(ctx context.Context, to bourse.Member, id bourse.MachineID, q WaitQuery) (WaitReply, error) {
	return exchange[WaitReply](ctx, c, to, ask{route: routeWait, id: string(id), query: q.values()})
}

// Events returns the machine's latest events, newest first; limit 0 means as
// many as the worker returns by default.
func (c *Client) Events(ctx context.Context, to bourse.Member, id bourse.MachineID, limit int) ([]bourse.Event, error) {
	return exchange[[]bourse.Event](ctx, c, to, ask{route: routeEvents, id: string(id), query: eventsQuery(limit)})
}

// Lease takes or extends the machine's lease.
func (c *Client) Lease(ctx context.Context, to bourse.Member, id bourse.MachineID, lease LeaseRequest) (bourse.Lease, error) {
	return exchange[bourse.Lease](ctx, c, to, ask{route: routeLease, id: string(id), body: lease})
}

// Metadata changes the machine's metadata.
func (c *Client) Metadata(ctx context.Context, to bourse.Member, id bourse.MachineID, change MetadataRequest) (bourse.Machine, error) {
	return exchange[bourse.Machine](ctx, c, to, ask{route: routeMetadata, id: string(id), body: change})
}
