package seal

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// Secret is one of an app's, sealed.
type Secret struct {
	Name      string
	Digest    string
	Sealed    []byte
	Version   uint64 // that it came with
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Versions of an app's secrets count milliseconds since 1970, and have in their
// lower bits which broker made them: two brokers never make the same, and what a
// broker makes is greater than all that it has heard of. They fit into a JSON
// number that every language reads as an integer.
const (
	writerBits = 10
	writers    = 1 << writerBits
	maxVersion = 1<<53 - 1
	// leastVersion is below all that are made: lower ones come from elsewhere, as
	// from a client that used another server, and whatever there is meets them.
	leastVersion = 1 << 40
)

// Writer is which broker makes versions.
type Writer uint16

// WriterOf returns the writer that a server is. Two of one number may make the
// same version when they do so in the same millisecond.
func WriterOf(site bourse.WorkerID) Writer {
	h := uint32(2166136261) // FNV-1a
	for _, c := range []byte(site) {
		h = (h ^ uint32(c)) * 16777619
	}
	return Writer((h ^ h>>writerBits ^ h>>(2*writerBits)) % writers)
}

// WriterIn returns the writer that made a version.
func WriterIn(version uint64) Writer { return Writer(version % writers) }

// Mark is how far a broker has come in changing an app's secrets: its latest
// version, and for each other broker the latest that it had heard of then.
type Mark struct {
	Version uint64
	Seen    map[Writer]uint64
}

// MarshalSeen writes what a mark's broker had heard of.
func (m Mark) MarshalSeen() []byte {
	b, _ := json.Marshal(m.Seen) // numbers always encode
	return b
}

// ReadMark reads a mark of the view. What is no mark says nothing.
func ReadMark(version uint64, seen []byte) (Mark, bool) {
	m := Mark{Version: version}
	if version < leastVersion || version > maxVersion {
		return m, false
	}
	return m, len(seen) == 0 || json.Unmarshal(seen, &m.Seen) == nil
}

// Marks are those of all brokers that have changed an app's secrets.
type Marks map[Writer]Mark

// Add takes in a mark.
func (ms Marks) Add(m Mark) {
	if w := WriterIn(m.Version); m.Version > ms[w].Version {
		ms[w] = m
	}
}

// Version is the latest version of all, 0 when there never was a secret.
func (ms Marks) Version() uint64 {
	var latest uint64
	for _, m := range ms {
		latest = max(latest, m.Version)
	}
	return latest
}

// Has reports whether all changes up to a version are there: those of the broker
// that made it, and those that it had heard of. Changes of other brokers with
// lower numbers may be missing, as no one knew of them.
func (ms Marks) Has(version uint64) bool {
	if version < leastVersion {
		return true
	}
	m := ms[WriterIn(version)]
	if m.Version < version {
		return false
	}
	for w, seen := range m.Seen {
		if ms[w].Version < seen {
			return false
		}
	}
	return true
}

// Includes reports whether who has a version, the latest of its broker, has an
// earlier one, too.
func (ms Marks) Includes(version, earlier uint64) bool {
	if earlier < leastVersion {
		return true
	}
	m, w := ms[WriterIn(version)], WriterIn(earlier)
	return w == WriterIn(version) && m.Version >= earlier || m.Seen[w] >= earlier
}

// Next makes the mark of a broker's next change.
func (ms Marks) Next(w Writer, now time.Time) Mark {
	at := max(uint64(max(now.UnixMilli(), 0)), ms.Version()>>writerBits+1, leastVersion>>writerBits)
	next := Mark{Version: at<<writerBits | uint64(w%writers), Seen: make(map[Writer]uint64, len(ms))}
	for other, m := range ms {
		if other != w {
			next.Seen[other] = m.Version
		}
	}
	return next
}

// Change is one change of an app's secrets: all of it happens, or nothing.
type Change struct {
	App  bourse.AppRef
	Put  []Secret
	Gone []string // names
	Mark Mark
}
