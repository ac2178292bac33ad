package wire

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Hasher computes hashes of row versions. The zero value is ready to use.
type Hasher struct{ buf []byte }

// Of returns a hash of a row version. The hash covers the table, the key, the site, the columns
// with non-default values and, for a shared row, the clock. It covers neither the position nor the
// time, so that a row has the same hash whether it was received in a snapshot or in transactions.
func (h *Hasher) Of(r Version) uint64 { return xxhash.Sum64(h.Encode(r)) }

// Encode encodes a version for hashing and, if the row is shared, for signing. The result is valid
// until the next method call.
func (h *Hasher) Encode(r Version) []byte {
	b := h.buf[:0]
	b = appendText(b, r.Table)
	b = appendText(b, r.Key)
	b = appendText(b, string(r.Site))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Clock))
	if r.Deleted {
		b = append(b, 'd')
	}
	for _, c := range r.Columns {
		b = appendText(b, c.Name)
		switch v := c.Value.(type) {
		case int64:
			b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v))
		case float64:
			b = binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
		case string:
			b = appendText(append(b, 's'), v)
		case []byte:
			b = appendText(append(b, 'b'), string(v))
		}
	}
	h.buf = b
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
