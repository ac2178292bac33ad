// Package tasks fills orders for tasks: a claim carries a payload, and its reply contains the
// program's answer. A call to a warm machine occupies a place on the machine, and takes the order's
// resources. It is recorded before its payload is sent, and the payload is sent only once. A cold
// task is a machine that exists for one payload, and continues if the daemon dies.
//
//   - A task is recorded before its payload is sent, and runs once. Repeating its order
//     returns the result. If the daemon dies during a warm task, the task is lost, but
//     its resources are released (invariants 4, 5 and 7).
//   - When the last caller of a task leaves, the task is canceled.
//
// Tasks is safe for concurrent use. Run ensures that tasks' outcomes become durable. The locks of
// calls and warmMachines are never held at the same time, and neither is held while other code is
// called.
package tasks

import (
	"context"
	"net"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Tasks manages the tasks of one worker.
type Tasks struct {
	state    *state.State
	host     *admit.Host
	machines Machines
	network  Network                                     // nil if the worker has no private networks
	cancel   func(context.Context, bourse.OrderID) error // cancels an order of any kind

	calls  calls
	warm   warmMachines
	counts taskCounts
}

// Machines runs the machines of cold tasks.
type Machines interface {
	// Begin decides whether to fill the claim's order. If so, it records the order's machine in a
	// durable transaction, in which it also calls record. It then starts the machine in the
	// background. The returned function waits for the start. The error may be an
	// [admit.NotFilledError].
	Begin(ctx context.Context, c *bourse.Claim, record func(*store.Tx, *bourse.Machine) error) (m bourse.Machine, started func(context.Context) error, err error)
	// StartRefusal returns the refusal for an order whose machine could not be started.
	StartRefusal(ctx context.Context, order *bourse.Order, machine bourse.MachineID, err error) *bourse.Refusal
	// Discard starts destroying a machine that is no longer needed.
	Discard(ctx context.Context, id bourse.MachineID) error
	// Logs calls fn for each line of a machine's output that matches the query.
	Logs(ctx context.Context, m *bourse.Machine, query driver.LogQuery, fn func(driver.LogLine) error) error
}

// Network dials machines that have private networks.
type Network interface {
	// Dial connects to a TCP port of a machine.
	Dial(ctx context.Context, machine bourse.MachineID, port uint16) (net.Conn, error)
}

// New returns a worker's tasks. cancel must cancel an order of any kind.
func New(s *state.State, host *admit.Host, machines Machines, network Network, cancel func(context.Context, bourse.OrderID) error) *Tasks {
	t := &Tasks{
		state: s, host: host, machines: machines, network: network, cancel: cancel,
		calls: calls{wake: make(chan struct{}, 1)}, warm: warmMachines{timeout: warmUpTimeout},
	}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			t.warm.changed(id)
		}
	})
	return t
}

// Close closes idle connections to programs immediately, and other connections when their calls
// end.
func (t *Tasks) Close() { t.warm.close() }
