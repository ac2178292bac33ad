package wire

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Hasher computes the hashes of records. The zero value is ready.
type Hasher struct{ buf []byte }

// Of hashes what a record says: site, table, key and each column that differs
// from its default, of a shared row its clock too. Where and when it was
// written is left out: a snapshot and the transactions have the same.
func (h *Hasher) Of(r Version) uint64 { return xxhash.Sum64(h.Encode(r)) }

// Encode writes what is hashed, and what of a shared row is signed. The bytes
// are good until the next call.
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
