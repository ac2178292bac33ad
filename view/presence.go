package view

import (
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// presenceStep is how far the value of heard_at in the file may lag behind while a site is
// reachable. More precision is not worth the additional writes.
const presenceStep = 15 * time.Second

// presence records whether a site is reachable, and whether that has been written to the file.
type presence struct {
	alive       bool
	at          int64 // time when the site was last reachable, in nanoseconds since 1970
	written     int64 // value of at in the file; 0 if there is none
	storedAlive bool  // value of alive in the file
}

// sites contains the presence of all sites.
type sites struct {
	seen      map[bourse.WorkerID]presence
	unwritten map[bourse.WorkerID]bool // sites whose presence has to be written
}

// due reports whether the presence has to be written to the file.
func (p presence) due() bool {
	return p.written == 0 || p.alive != p.storedAlive || p.at-p.written >= int64(presenceStep) || !p.alive && p.at != p.written
}

// SetPresence records whether a site is reachable, and when it was last reachable. It does not wait for the file.
func (v *View) SetPresence(site bourse.WorkerID, alive bool, at time.Time) {
	v.mu.Lock()
	p := v.sites.seen[site]
	p.alive, p.at = alive, max(at.UnixNano(), 1)
	v.sites.seen[site] = p
	if p.due() {
		v.sites.unwritten[site] = true
	}
	v.mu.Unlock()
	if p.due() {
		v.poke()
	}
}

// dropPresence removes the presence of sites that have been unreachable for a long time.
func (w *writer) dropPresence() {
	limit := w.view.config.Now().Add(-streamRetention).UnixNano()
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	maps.DeleteFunc(w.view.sites.seen, func(site bourse.WorkerID, p presence) bool {
		return !p.alive && p.at < limit && !w.view.sites.unwritten[site]
	})
}

// takePresence returns the presence of each site whose entry in the file is outdated. Only the
// writer calls it.
func (w *writer) takePresence() map[bourse.WorkerID]presence {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	if len(w.view.sites.unwritten) == 0 {
		return nil
	}
	due := make(map[bourse.WorkerID]presence, len(w.view.sites.unwritten))
	for site := range w.view.sites.unwritten {
		due[site] = w.view.sites.seen[site]
	}
	return due
}

// writePresence writes the given presences to the file.
func (b *batch) writePresence(due map[bourse.WorkerID]presence) error {
	for site, p := range due {
		err := schema.Run(b.conn, `INSERT INTO sites (site, alive, heard_at) VALUES (?, ?, ?)
			ON CONFLICT (site) DO UPDATE SET alive = excluded.alive, heard_at = excluded.heard_at`, site, p.alive, p.at)
		if err != nil {
			return err
		}
		b.touched[TableSites] = true
	}
	return nil
}

// presenceWritten records that the presences in due have been written to the file. The caller holds
// the view's lock.
func (w *writer) presenceWritten(due map[bourse.WorkerID]presence) {
	for site, reported := range due {
		p := w.view.sites.seen[site]
		p.written, p.storedAlive = reported.at, reported.alive
		w.view.sites.seen[site] = p
		if !p.due() {
			delete(w.view.sites.unwritten, site)
		}
	}
}
