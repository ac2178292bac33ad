package worker

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
)

// news tells those who wait that a record may have changed.
type news[ID comparable] struct {
	mu    sync.Mutex
	waits map[ID]chan struct{} // guarded by mu; closed and dropped when told
}

func newNews[ID comparable]() *news[ID] { return &news[ID]{waits: map[ID]chan struct{}{}} }

// of gives a channel that is closed at the next change. Take it before
// reading the record, so that no change falls between.
func (n *news[ID]) of(id ID) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	ch, ok := n.waits[id]
	if !ok {
		ch = make(chan struct{})
		n.waits[id] = ch
	}
	return ch
}

// tell wakes all who wait for id.
func (n *news[ID]) tell(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch, ok := n.waits[id]; ok {
		close(ch)
		delete(n.waits, id)
	}
}

// await reads a machine at each change until it is as wanted, and gives it.
func (w *Worker) await(ctx context.Context, id bourse.MachineID, wanted func(*bourse.Machine) bool) (bourse.Machine, error) {
	for {
		change := w.news.of(id)
		m, err := w.machine(ctx, id)
		if err != nil || wanted(&m) {
			return m, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
	}
}
