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

// The version of an app's secrets is a number of milliseconds since 1970, with the broker that
// created it in the lower bits. Brokers with different Writers never create the same version, and
// a new version is greater than all versions that its broker knows. Versions fit into a JSON
// number that every language reads as an integer.
const (
	writerBits = 10
	writers    = 1 << writerBits
	maxVersion = 1<<53 - 1
	// leastVersion is less than every version that brokers create. Lower versions come
	// from other systems, such as a client that used another server, and are treated as
	// known.
	leastVersion = 1 << 40
)

// Writer identifies the broker that created a version.
type Writer uint16

// WriterOf returns the writer for a server, a hash of its id. Two brokers with the same hash can
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

// Mark records a broker's latest change to an app's secrets: the version of the change, and the latest version of each
// other broker that it knew at that time.
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

// Marks maps each broker that has changed an app's secrets to its latest mark.
type Marks map[Writer]Mark

// Add adds a mark, unless the set already contains a later one by the same writer.
func (ms Marks) Add(m Mark) {
	if w := WriterIn(m.Version); m.Version > ms[w].Version {
		ms[w] = m
	}
}

// Version returns the latest version, or 0 if the app never had a secret.
func (ms Marks) Version() uint64 {
	var latest uint64
	for _, m := range ms {
		latest = max(latest, m.Version)
	}
	return latest
}

// Has reports whether the marks include all changes that the given version includes: the change
// itself, and the changes that its broker knew at that time. Changes by other brokers may be
// missing even if their versions are lower.
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

// Includes reports whether the given version, which must be its broker's latest, includes the
// change with an earlier version.
func (ms Marks) Includes(version, earlier uint64) bool {
	if earlier < leastVersion {
		return true
	}
	m, w := ms[WriterIn(version)], WriterIn(earlier)
	return w == WriterIn(version) && m.Version >= earlier || m.Seen[w] >= earlier
}

// Next returns the mark of the next change by broker w.
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
