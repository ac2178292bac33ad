package store

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/store/kv"
)

// Tx is a transaction. It is valid only on the goroutine of the function that receives it, and only
// until that function returns. The sequences that its methods return read lazily, so do not write
// while you iterate over them.
type Tx struct {
	kv     kv.Tx
	writes bool // whether this is a read-write transaction
}

var _ fsm.Tx = (*Tx)(nil)

// maxKeyPart is the maximum length of each part of a key, in bytes.
const maxKeyPart = 1024

// key joins parts with zero bytes. It returns CodeInvalid if a part is empty, is too long, or
// contains a zero byte. A part with a zero byte could make different lists of parts result in the
// same key.
func key(parts ...string) ([]byte, error) {
	for _, p := range parts {
		if p == "" || len(p) > maxKeyPart || strings.ContainsRune(p, 0) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s cannot be part of a key", bourse.Quoted(p))
		}
	}
	return []byte(strings.Join(parts, "\x00")), nil
}

// timeKey returns a key that sorts ids by time.
func timeKey(at time.Time, id string) []byte {
	// The sign bit is inverted, so that times before 1970 sort first.
	return append(append(uint64Bytes(uint64(at.UnixNano())^(1<<63)), 0), id...)
}

// splitTimeKey returns the time and the id from a key created by timeKey.
func splitTimeKey(b []byte) (time.Time, string) {
	if len(b) < 9 {
		return time.Time{}, ""
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(b)^(1<<63))), string(b[9:])
}

func uint64Bytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func uint64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// keysBelow returns a bucket's keys that begin with a prefix, without that prefix.
func (t *Tx) keysBelow(bucket string, prefix []byte) iter.Seq[[]byte] {
	return func(yield func(rest []byte) bool) {
		for k := range t.kv.Range(bucket, prefix) {
			if !bytes.HasPrefix(k, prefix) || !yield(k[len(prefix):]) {
				return
			}
		}
	}
}

// recordVersion is the first byte of every record. The rest is CBOR (package codec).
const recordVersion = 3

// encode encodes a record.
func encode(v any) ([]byte, error) {
	b, err := codec.Marshal(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode a record: %w", err)
	}
	return slices.Insert(b, 0, recordVersion), nil
}

// decode decodes the record b into v. It does not retain b.
func decode(b []byte, v any) error {
	if len(b) == 0 || b[0] != recordVersion {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %s", bourse.Quoted(string(b)))
	}
	if err := codec.Unmarshal(b[1:], v); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %w", err)
	}
	return nil
}
