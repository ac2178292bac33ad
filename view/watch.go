package view

import "slices"

// Tables that Watch accepts in addition to the replicated ones.
const (
	TableSites    = "sites"   // presence of sites, which determines host_status
	TableServices = "service" // derived from machines
)

// Watcher notifies its owner when tables have changed.
type Watcher struct {
	C <-chan struct{} // receives a value after a watched table has changed; several changes before the value is read count as one

	c      chan struct{}
	tables []string
	view   *View
}

// Watch returns a Watcher for commits that change one of the given tables or, if no table is given, any table.
// Tables are named without the "_rows" suffix. Replacing the file counts as a change to all tables.
func (v *View) Watch(tables ...string) *Watcher {
	c := make(chan struct{}, 1)
	w := &Watcher{C: c, c: c, tables: slices.Clone(tables), view: v}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watchers[w] = struct{}{}
	return w
}

// Stop stops the notifications. It does not close C.
func (w *Watcher) Stop() {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	delete(w.view.watchers, w)
}

// wakeWatchers notifies the watchers of the touched tables, or all watchers if touched is nil.
// The caller holds the view's lock.
func (v *View) wakeWatchers(touched map[string]bool) {
	for w := range v.watchers {
		if touched != nil && !w.wants(touched) {
			continue
		}
		select {
		case w.c <- struct{}{}:
		default: // a notification is already pending
		}
	}
}

func (w *Watcher) wants(touched map[string]bool) bool {
	if len(w.tables) == 0 {
		return len(touched) > 0
	}
	return slices.ContainsFunc(w.tables, func(t string) bool { return touched[t] })
}
