package view

import (
	"cmp"
	"os"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Health describes the state of a view.
type Health struct {
	Site       bourse.WorkerID `json:"site"`
	Self       wire.Position   `json:"self"`
	FileBytes  int64           `json:"file_bytes"`
	Error      string          `json:"error,omitzero"` // reason why the file cannot be written; empty if it can be written
	Queue      QueueHealth     `json:"queue"`
	Quarantine Quarantine      `json:"quarantine"`
	Tables     []TableHealth   `json:"tables"`  // sorted by name
	Streams    []StreamHealth  `json:"streams"` // sorted by site and epoch
}

// QueueHealth describes the queue of transactions that have not been applied yet.
type QueueHealth struct {
	Length  int    `json:"length"`
	Bytes   int    `json:"bytes"`
	Waiting int    `json:"waiting"` // transactions that wait for earlier ones
	Dropped uint64 `json:"dropped"` // transactions dropped for lack of space, since startup
}

// Quarantine describes the rows that could not be applied.
type Quarantine struct {
	Count  int           `json:"count"`
	Newest []Quarantined `json:"newest,omitempty"` // the newest rows, at most 20
}

// Quarantined is a row that could not be applied.
type Quarantined struct {
	Origin wire.Position `json:"origin"`
	Table  string        `json:"table"`
	Key    string        `json:"key"`
	Reason string        `json:"reason"`
	Since  time.Time     `json:"since"`
}

// TableHealth contains a table's size and checksum. Both are equal on all members that have the
// same rows.
type TableHealth struct {
	Table    string `json:"table"`
	Rows     int    `json:"rows"`
	Checksum uint64 `json:"checksum"`
}

// StreamHealth describes the progress of a stream.
type StreamHealth struct {
	Head
	Lag  time.Duration `json:"lag"`           // time since the site wrote its last transaction; includes the difference between the two servers' clocks
	Gaps int           `json:"gaps,omitzero"` // transactions that wait for earlier ones
}

// Overloaded reports whether transactions arrive faster than they are applied: the waiting ones occupy more than half
// of the queue.
func (v *View) Overloaded() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.intake.overloaded()
}

// Health returns the state of the view. It is cheap enough to be called every few seconds.
func (v *View) Health() Health {
	now := v.config.Now()
	v.mu.Lock()
	st := v.state
	h := Health{
		Site: st.self.Site, Self: wire.Position{Stream: st.self, Seq: st.heads[st.self].seq}, Quarantine: st.quarantine,
		Queue:  QueueHealth{len(v.intake.items), v.intake.bytes, v.intake.allWaiting(), v.intake.dropped},
		Tables: st.tableHealth(),
	}
	h.Quarantine.Newest = slices.Clone(st.quarantine.Newest)
	if v.faults.writing != nil {
		h.Error = v.faults.writing.Error()
	}
	for _, head := range st.sorted(now) {
		lag := max(now.Sub(wire.TimeOf(head.At)), 0)
		h.Streams = append(h.Streams, StreamHealth{head, lag, v.intake.waitingCount(head.Stream)})
	}
	v.mu.Unlock()
	for _, name := range []string{v.config.Path, v.config.Path + "-wal"} {
		if info, err := os.Stat(name); v.config.Path != "" && err == nil { // the -wal file may not exist
			h.FileBytes += info.Size()
		}
	}
	return h
}

// tableHealth returns the size and checksum of each table that is not empty.
func (st *state) tableHealth() []TableHealth {
	by := map[string]TableHealth{}
	for k, s := range st.sums {
		t := by[k.table]
		by[k.table] = TableHealth{k.table, t.Rows + int(s.rows), t.Checksum ^ s.hash}
	}
	out := make([]TableHealth, 0, len(by))
	for _, t := range by {
		if t.Rows > 0 || t.Checksum != 0 {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b TableHealth) int { return cmp.Compare(a.Table, b.Table) })
	return out
}
