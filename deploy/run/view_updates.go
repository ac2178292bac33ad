package run

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Intervals at which a machine is read while the run waits for it. slowInterval applies while the run receives
// changes to the view. Reading the machine is necessary even then, because changes may be lost.
const (
	slowInterval = time.Second
	fastInterval = 200 * time.Millisecond
)

// viewUpdates follows the app's machines in the API server's copy of the view. The view is only a hint: it shows when
// a machine should be read, and which changes have been published. The API's replies are authoritative.
type viewUpdates struct {
	mu        sync.Mutex
	complete  bool // rows contains all of the app's machines
	forbidden bool // the API does not permit reading the view
	rows      map[bourse.MachineID]Row
	wake      map[bourse.MachineID]chan struct{}
}

func newViewUpdates() *viewUpdates {
	return &viewUpdates{rows: map[bourse.MachineID]Row{}, wake: map[bourse.MachineID]chan struct{}{}}
}

// run keeps n.rows up to date until ctx is done. It returns earlier if the API does not permit or support reading the
// view.
func (n *viewUpdates) run(ctx context.Context, api API) {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := api.Rows(ctx, func(row Row) {
			wait = minBackoff
			n.take(row)
		})
		if ctx.Err() != nil {
			return
		}
		n.mu.Lock()
		n.complete, n.rows = false, map[bourse.MachineID]Row{}
		switch bourse.CodeOf(err) {
		case bourse.CodeForbidden, bourse.CodeUnauthorized, bourse.CodeInvalid, bourse.CodeNotFound:
			n.forbidden = true
		default:
		}
		denied := n.forbidden
		n.wakeAll()
		n.mu.Unlock()
		if denied || sleep(ctx, wait) != nil {
			return
		}
	}
}

func (n *viewUpdates) take(row Row) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case row.Machine == "":
		n.complete = true
		n.wakeAll()
		return
	case row.Gone:
		delete(n.rows, row.Machine)
	default:
		n.rows[row.Machine] = row
	}
	if c := n.wake[row.Machine]; c != nil {
		close(c)
		delete(n.wake, row.Machine)
	}
}

// wakeAll wakes all goroutines that wait for changes. The caller must hold mu.
func (n *viewUpdates) wakeAll() {
	for id, c := range n.wake {
		close(c)
		delete(n.wake, id)
	}
}

// next returns a channel that is closed when the view reports a change to a machine. It also returns how long to wait
// for a change before reading the machine anyway.
func (n *viewUpdates) next(id bourse.MachineID) (<-chan struct{}, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.wake[id]
	if c == nil {
		c = make(chan struct{})
		n.wake[id] = c
	}
	if n.complete {
		return c, slowInterval
	}
	return c, fastInterval
}

// row returns a machine's row. ok reports whether this row has been received, and complete reports whether all rows
// have been received. If complete is true and ok is false, the view does not contain the machine.
func (n *viewUpdates) row(id bourse.MachineID) (row Row, ok, complete bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	row, ok = n.rows[id]
	return row, ok, n.complete
}

// unavailable reports whether the API does not permit reading the view. In that case, no changes will arrive.
func (n *viewUpdates) unavailable() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forbidden
}

// poll calls look immediately, at intervals, and whenever the machine has changed. It returns when look returns true or
// an error, or when ctx is done.
func (n *viewUpdates) poll(ctx context.Context, id bourse.MachineID, look func() (bool, error)) error {
	for {
		news, most := n.next(id) // must precede look, so that no change is missed
		if done, err := look(); done || err != nil {
			return err
		}
		timer := time.NewTimer(most)
		select {
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
