package worker

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
)

// news tells those who wait that a machine's record may have changed.
type news struct {
	mu    sync.Mutex
	waits map[bourse.MachineID]chan struct{} // guarded by mu; closed and dropped when told
}

func newNews() *news { return &news{waits: map[bourse.MachineID]chan struct{}{}} }

// of gives a channel that is closed at the next change. Take it before
// reading the record, so that no change falls between.
func (n *news) of(id bourse.MachineID) <-chan struct{} {
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
func (n *news) tell(id bourse.MachineID) {
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
