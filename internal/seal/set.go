package seal

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// Secret is a sealed secret of an app.
type Secret struct {
	Name      string
	Digest    string
	Sealed    []byte
	Version   uint64 // version of the change that set the secret
	CreatedAt time.Time
	UpdatedAt time.Time
}

// The version of an app's secrets contains a Unix time in milliseconds in its upper bits, and the
// [Writer] that created it in its lower bits. Different writers never create the same version, and a
// new version is greater than every version that its writer has seen. Versions fit in 53 bits, so
// they can be read from JSON in any language without loss of precision.
const (
	writerBits = 10
	writers    = 1 << writerBits
	maxVersion = 1<<53 - 1
	// leastVersion is the lowest version that a broker can create. Lower versions come from other
	// systems, for example from a client that previously used another server. [Marks.Has] and
	// [Marks.Includes] return true for them.
	leastVersion = 1 << 40
)

// Writer identifies the broker that created a version.
type Writer uint16

// WriterOf returns a broker's writer: a hash of the broker's id. Two brokers with the same hash can
// create the same version, but only in the same millisecond.
func WriterOf(site bourse.WorkerID) Writer {
	h := uint32(2166136261) // the hash is FNV-1a
	for _, c := range []byte(site) {
		h = (h ^ uint32(c)) * 16777619
	}
	return Writer((h ^ h>>writerBits ^ h>>(2*writerBits)) % writers)
}

// WriterIn returns the writer that created a version.
func WriterIn(version uint64) Writer { return Writer(version % writers) }

// Mark describes a broker's latest change to an app's secrets. Version is the version of the
// change. Seen contains the latest version that this broker had received from each other broker
// when it made the change.
type Mark struct {
	Version uint64
	Seen    map[Writer]uint64
}

// MarshalSeen encodes m.Seen as JSON.
func (m Mark) MarshalSeen() []byte {
	b, _ := json.Marshal(m.Seen) // encoding numbers cannot fail
	return b
}

// ReadMark decodes a mark from the view. It returns false if the text is invalid.
func ReadMark(version uint64, seen []byte) (Mark, bool) {
	m := Mark{Version: version}
	if version < leastVersion || version > maxVersion {
		return m, false
	}
	return m, len(seen) == 0 || json.Unmarshal(seen, &m.Seen) == nil
}

// Marks maps each broker that has changed an app's secrets to that broker's latest mark.
type Marks map[Writer]Mark

// Add adds a mark, unless ms already contains a later mark of the same writer.
func (ms Marks) Add(m Mark) {
	if w := WriterIn(m.Version); m.Version > ms[w].Version {
		ms[w] = m
	}
}

// Version returns the latest version, or 0 if the app has never had a secret.
func (ms Marks) Version() uint64 {
	var latest uint64
	for _, m := range ms {
		latest = max(latest, m.Version)
	}
	return latest
}

// Has reports whether the marks include the change with the given version, and all changes that the
// broker that made this change had received before it. Other changes may be missing, even if their
// versions are lower.
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

// Includes reports whether the broker that created a version of an app's secrets had already made
// or received a certain earlier change. version is the version that this broker created; it must be
// the broker's latest one in ms. change is the version that the earlier change created.
func (ms Marks) Includes(version, change uint64) bool {
	if change < leastVersion {
		return true
	}
	m, w := ms[WriterIn(version)], WriterIn(change)
	return w == WriterIn(version) && m.Version >= change || m.Seen[w] >= change
}

// Next returns the mark for a new change by broker w.
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

// Change is one atomic change to an app's secrets.
type Change struct {
	App  bourse.AppRef
	Put  []Secret
	Gone []string // names of the removed secrets
	Mark Mark
}
