package run

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Intervals at which a machine is read while the run waits for it. lookWithNews applies
// while the run receives changes of the view, because some changes may be lost.
const (
	lookWithNews    = time.Second
	lookWithoutNews = 200 * time.Millisecond
)

// news follows the app's machines in the API server's copy of the view. It is only a hint
// about when to read a machine and which changes have been published. The API's replies
// are authoritative.
type news struct {
	mu     sync.Mutex
	live   bool // rows contains all of the app's machines
	denied bool // the API does not permit reading the view
	rows   map[bourse.MachineID]Row
	wake   map[bourse.MachineID]chan struct{}
}

func newNews() *news {
	return &news{rows: map[bourse.MachineID]Row{}, wake: map[bourse.MachineID]chan struct{}{}}
}

// run keeps the rows up to date until ctx is done or the API refuses to provide them.
func (n *news) run(ctx context.Context, api API) {
	for wait := backFirst; ; wait = min(2*wait, backMost) {
		err := api.Rows(ctx, func(row Row) {
			wait = backFirst
			n.take(row)
		})
		if ctx.Err() != nil {
			return
		}
		n.mu.Lock()
		n.live, n.rows = false, map[bourse.MachineID]Row{}
		switch bourse.CodeOf(err) {
		case bourse.CodeForbidden, bourse.CodeUnauthorized, bourse.CodeInvalid, bourse.CodeNotFound:
			n.denied = true
		default:
		}
		denied := n.denied
		n.wakeAll()
		n.mu.Unlock()
		if denied || rest(ctx, wait) != nil {
			return
		}
	}
}

func (n *news) take(row Row) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case row.Machine == "":
		n.live = true
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

// wakeAll wakes all goroutines that wait for news. The caller must hold mu.
func (n *news) wakeAll() {
	for id, c := range n.wake {
		close(c)
		delete(n.wake, id)
	}
}

// next returns a channel that is closed when there is news of a machine, and the time after
// which to read the machine anyway.
func (n *news) next(id bourse.MachineID) (<-chan struct{}, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.wake[id]
	if c == nil {
		c = make(chan struct{})
		n.wake[id] = c
	}
	if n.live {
		return c, lookWithNews
	}
	return c, lookWithoutNews
}

// row returns a machine's row. The result there reports whether the row has been
// received. The result known reports whether all rows have been received, so that a
// missing row does not exist.
func (n *news) row(id bourse.MachineID) (row Row, there, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	row, there = n.rows[id]
	return row, there, n.live
}

// never() reports whether the API has refused to provide news, so that none will arrive.
func (n *news) never() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.denied
}

// until calls look at once, and again at intervals and whenever there is news of the
// machine. It stops when look returns true or an error, or when ctx is done.
func (n *news) until(ctx context.Context, id bourse.MachineID, look func() (bool, error)) error {
	for {
		news, most := n.next(id) // must precede look, so that no news is missed
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
