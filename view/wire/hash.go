package wire

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Hasher computes hashes of versions. The zero value is ready to use.
type Hasher struct{ buf []byte }

// Of returns the hash of a version's table, key, site, non-default columns and, for a shared row,
// clock. It does not hash the position and time, so that a row has the same hash whether it was
// received in a snapshot or in transactions.
func (h *Hasher) Of(r Version) uint64 { return xxhash.Sum64(h.Encode(r)) }

// Encode returns the bytes of a version that are hashed and, for a shared row, signed. They are
// valid until the next call.
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
