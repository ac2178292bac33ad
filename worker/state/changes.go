package state

import "sync"

// Changes announces changes to records of one kind. Callers can wait for the next change to a record, or follow the
// changes to all records.
type Changes[ID comparable] struct {
	followers []func(id ID, unsure bool) // fixed before the first change

	mu    sync.Mutex
	waits map[ID]chan struct{} // guarded by mu; each channel is closed and removed at the record's next change
}

func newChanges[ID comparable]() *Changes[ID] { return &Changes[ID]{waits: map[ID]chan struct{}{}} }

// Follow registers fn to be called after each change. fn is called on the goroutine that made the change, and must not
// block. unsure is true if the change was submitted to the store but may still fail. Followers must be registered
// before the worker runs.
func (n *Changes[ID]) Follow(fn func(id ID, unsure bool)) { n.followers = append(n.followers, fn) }

// Next returns a channel that is closed at the next change to a record. Call it before reading the record, so that no
// change in between is missed.
func (n *Changes[ID]) Next(id ID) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	ch, ok := n.waits[id]
	if !ok {
		ch = make(chan struct{})
		n.waits[id] = ch
	}
	return ch
}

// Applied announces a change that the store has applied.
func (n *Changes[ID]) Applied(id ID) {
	n.follow(id, false)
	n.wake(id)
}

// Submitted announces a change that has been submitted to the store and may still fail.
func (n *Changes[ID]) Submitted(id ID) { n.follow(id, true) }

func (n *Changes[ID]) follow(id ID, unsure bool) {
	for _, fn := range n.followers {
		fn(id, unsure)
	}
}

func (n *Changes[ID]) wake(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch, ok := n.waits[id]; ok {
		close(ch)
		delete(n.waits, id)
	}
}
