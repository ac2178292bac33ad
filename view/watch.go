package view

import "slices"

// Pseudo-tables that a Watcher can name beside the replicated ones.
const (
	TableSites    = "sites"   // who is heard from: decides host_status
	TableServices = "service" // derived from machines
)

// Watcher is notified when tables have changed.
type Watcher struct {
	C <-chan struct{} // has one element when something changed since the last receive

	c      chan struct{}
	tables []string
	view   *View
}

// Watch notifies of commits that touch one of the tables, by their names without
// "_rows"; without any, of all commits. Replacing the file touches all.
func (v *View) Watch(tables ...string) *Watcher {
	c := make(chan struct{}, 1)
	w := &Watcher{C: c, c: c, tables: slices.Clone(tables), view: v}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watchers[w] = struct{}{}
	return w
}

// Stop ends the watching. C stays open and silent.
func (w *Watcher) Stop() {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	delete(w.view.watchers, w)
}

// wakeWatchers pokes those of some tables, or of all with nil. The caller holds
// the view's lock.
func (v *View) wakeWatchers(touched map[string]bool) {
	for w := range v.watchers {
		if touched != nil && !w.wants(touched) {
			continue
		}
		select {
		case w.c <- struct{}{}:
		default: // it has not looked since the last one
		}
	}
}

func (w *Watcher) wants(touched map[string]bool) bool {
	if len(w.tables) == 0 {
		return len(touched) > 0
	}
	return slices.ContainsFunc(w.tables, func(t string) bool { return touched[t] })
}
