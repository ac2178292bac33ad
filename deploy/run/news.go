package run

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// How often a machine is looked at while waiting: with news of the view, in case some was lost, and without.
const (
	lookWithNews    = time.Second
	lookWithoutNews = 200 * time.Millisecond
)

// news follows the app's machines in the API's copy of the view. It is a hint: it tells when to look and what was
// published, but the API decides what is true.
type news struct {
	mu     sync.Mutex
	live   bool // rows is complete
	denied bool // there will be no news
	rows   map[bourse.MachineID]Row
	wake   map[bourse.MachineID]chan struct{}
}

func newNews() *news {
	return &news{rows: map[bourse.MachineID]Row{}, wake: map[bourse.MachineID]chan struct{}{}}
}

// run keeps the rows up to date until ctx ends or the API refuses it.
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

// wakeAll is called with mu held.
func (n *news) wakeAll() {
	for id, c := range n.wake {
		close(c)
		delete(n.wake, id)
	}
}

// next returns a channel that is closed at the next news of a machine, and how long to wait before looking at the
// machine anyway.
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

// row returns a machine's row. Known means that all rows are known, so that a missing row does not exist.
func (n *news) row(id bourse.MachineID) (row Row, there, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	row, there = n.rows[id]
	return row, there, n.live
}

// never reports whether there will be no news.
func (n *news) never() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.denied
}

// until calls look, and again at each news of a machine, until look returns true or an error, or ctx ends.
func (n *news) until(ctx context.Context, id bourse.MachineID, look func() (bool, error)) error {
	for {
		news, most := n.next(id) // before the look
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
