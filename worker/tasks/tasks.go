// Package tasks fills orders for work: a payload in, an answer out, within the
// claim. A call on a warm machine takes a place on it and what its order takes,
// is recorded before its payload is sent, and is sent once. A cold task is a
// machine that lives for one payload, and goes on when the daemon dies.
//
//   - A task is recorded before its payload is sent, and is run once: a
//     repetition of its order returns how it ended. What a daemon's death cuts
//     off is lost, and its slots are not (invariants 4, 5 and 7).
//   - The last caller of a task that leaves ends it.
//
// A Tasks is used by any number of goroutines. One of its own, Run, has the ends
// of tasks become durable. Its locks, of calls and of warmMachines, are held over
// nothing, and never both.
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

// Tasks are the tasks of one worker.
type Tasks struct {
	state    *state.State
	host     *admit.Host
	machines Machines
	network  Network                                     // nil: none
	cancel   func(context.Context, bourse.OrderID) error // cancels an order, whatever fills it

	calls calls
	warm  warmMachines
	tally tally
}

// Machines are the machines of cold tasks.
type Machines interface {
	// Begin records a machine for the claim's order in one durable transaction
	// with what record writes, and begins to start it; started waits for that.
	// An error may be [admit.Declined].
	Begin(ctx context.Context, c *bourse.Claim, record func(*store.Tx, *bourse.Machine) error) (m bourse.Machine, started func(context.Context) error, err error)
	// Unfillable returns the refusal of an order whose machine could not be
	// started.
	Unfillable(ctx context.Context, order *bourse.Order, machine bourse.MachineID, err error) *bourse.Refusal
	// Discard has a machine destroyed that no one needs any more.
	Discard(ctx context.Context, id bourse.MachineID) error
	// Logs calls fn with what a machine's program has written.
	Logs(ctx context.Context, m *bourse.Machine, query driver.LogQuery, fn func(driver.LogLine) error) error
}

// Network reaches machines that have a network of their own.
type Network interface {
	// Dial connects to a TCP port of a machine.
	Dial(ctx context.Context, machine bourse.MachineID, port uint16) (net.Conn, error)
}

// New makes the tasks of a worker. It starts nothing.
func New(s *state.State, host *admit.Host, machines Machines, network Network, cancel func(context.Context, bourse.OrderID) error) *Tasks {
	t := &Tasks{
		state: s, host: host, machines: machines, network: network, cancel: cancel,
		calls: calls{wake: make(chan struct{}, 1)}, warm: warmMachines{patience: warmUp},
	}
	s.Machines.Follow(func(id bourse.MachineID, unsure bool) {
		if !unsure {
			t.warm.changed(id)
		}
	})
	return t
}

// Close closes the connections to programs that no call uses, and those of calls
// as they end.
func (t *Tasks) Close() { t.warm.close() }
