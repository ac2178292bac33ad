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

// Tx is a transaction. It is valid during the call of the function that it was
// passed to, on that goroutine only. A sequence that one of its methods returns
// reads as it goes: nothing is to be written while it is ranged over.
type Tx struct {
	kv     kv.Tx
	writes bool // it may write
}

var _ fsm.Tx = (*Tx)(nil)

// maxKeyPart bounds each part of a key in bytes.
const maxKeyPart = 1024

// key joins parts with zero bytes. A part that is empty, too long or holds a
// zero byte is refused: it could be taken for another key.
func key(parts ...string) ([]byte, error) {
	for _, p := range parts {
		if p == "" || len(p) > maxKeyPart || strings.ContainsRune(p, 0) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s cannot be part of a key", bourse.Quoted(p))
		}
	}
	return []byte(strings.Join(parts, "\x00")), nil
}

// timeKey orders ids by time.
func timeKey(at time.Time, id string) []byte {
	// Shifted, so that times before 1970 come first.
	return append(append(uint64Bytes(uint64(at.UnixNano())^(1<<63)), 0), id...)
}

// splitTimeKey undoes timeKey.
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

// under returns the keys of a bucket that begin with prefix, each without it.
func (t *Tx) under(bucket string, prefix []byte) iter.Seq[[]byte] {
	return func(yield func(rest []byte) bool) {
		for k := range t.kv.Range(bucket, prefix) {
			if !bytes.HasPrefix(k, prefix) || !yield(k[len(prefix):]) {
				return
			}
		}
	}
}

// recordForm begins every record: what follows is CBOR (package codec).
const recordForm = 3

// encode writes a record.
func encode(v any) ([]byte, error) {
	b, err := codec.Marshal(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode a record: %w", err)
	}
	return slices.Insert(b, 0, recordForm), nil
}

// decode reads a record into v. It keeps nothing of b.
func decode(b []byte, v any) error {
	if len(b) == 0 || b[0] != recordForm {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %s", bourse.Quoted(string(b)))
	}
	if err := codec.Unmarshal(b[1:], v); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %w", err)
	}
	return nil
}
