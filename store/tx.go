package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// Tx is a transaction. It is valid during the call of the function that it was
// passed to, on that goroutine only. A sequence that one of its methods gives
// reads as it goes: nothing is to be written while it is ranged over.
type Tx struct {
	layers
	writes *writes // of the commit that it becomes part of; nil: it must not write
}

// writes is what the transactions of a commit have written so far.
type writes struct {
	record []byte // of the write-ahead log
	undo   []undo // of the present transaction's writes
}

// undo is what a write has replaced.
type undo struct {
	tree *changes
	change
	had bool // else the tree had nothing of the key
}

var _ fsm.Tx = (*Tx)(nil)

// The buckets; see the schema in doc.go.
const (
	bucketMeta          = "meta"
	bucketMachines      = "machines"
	bucketMachineApp    = "machine_app"
	bucketMachineName   = "machine_name"
	bucketMachinePort   = "machine_port"
	bucketMachineGone   = "machine_gone"
	bucketMachineLiving = "machine_living"
	bucketCommitted     = "committed"
	bucketOrders        = "orders"
	bucketOrderTime     = "order_time"
	bucketApps          = "apps"
	bucketLog           = "log"
	bucketLogOf         = "log_of"
	bucketRuns          = "runs"
	bucketRunKey        = "run_key"
	bucketRunOpen       = "run_open"
	bucketVolumes       = "volumes"
	bucketVolumeApp     = "volume_app"
	bucketVolumeGone    = "volume_gone"
	bucketSnapshots     = "snapshots"
	bucketTaskOpen      = "task_open"
	bucketTaskTime      = "task_time"
	bucketMachineTask   = "machine_task"
	bucketHolds         = "holds"
	bucketHoldOf        = "hold_of"
	bucketHoldEnd       = "hold_end"
)

// put keeps value.
func (t *Tx) put(bucket string, key, value []byte) error {
	return t.change(change{bucket: bucket, key: bytes.Clone(key), value: value})
}

func (t *Tx) delete(bucket string, key []byte) error {
	return t.change(change{bucket: bucket, key: bytes.Clone(key)})
}

func (t *Tx) change(c change) error {
	if t.writes == nil {
		return errReadOnly
	}
	if len(c.key) == 0 || len(c.key) > bbolt.MaxKeySize {
		return bourse.Errorf(bourse.CodeInternal, "a key of %d bytes", len(c.key))
	}
	t.writes.record = appendOp(t.writes.record, &c)
	switch {
	case !small(c.bucket):
		t.set(t.latest, c)
	case c.value != nil:
		t.set(t.small, c)
	default:
		if old, had := t.small.Delete(c); had {
			t.writes.undo = append(t.writes.undo, undo{t.small, old, true})
		}
	}
	return nil
}

func (t *Tx) set(tree *changes, c change) {
	old, had := tree.Set(c)
	if !had {
		old = c
	}
	t.writes.undo = append(t.writes.undo, undo{tree, old, had})
}

// takeBack undoes all that t has written since the record had so many bytes.
func (t *Tx) takeBack(mark int) {
	w := t.writes
	w.record = w.record[:mark]
	for _, u := range slices.Backward(w.undo) {
		if u.had {
			u.tree.Set(u.change)
		} else {
			u.tree.Delete(u.change)
		}
	}
}

var errReadOnly = bourse.Errorf(bourse.CodeInternal, "a transaction that reads must not write")

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

// recordVersion begins every record.
const recordVersion = 1

// encode writes a record.
func encode(v any) ([]byte, error) {
	if o, ok := v.(OrderRecord); ok && o.compact() {
		return encodeTask(&o), nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode a record: %w", err)
	}
	return append([]byte{recordVersion}, b...), nil
}

// decode reads a record into v. It keeps nothing of b.
func decode(b []byte, v any) error {
	if o, ok := v.(*OrderRecord); ok && len(b) > 0 && b[0] == taskVersion {
		rec, err := decodeTask(b)
		*o = rec
		return err
	}
	if len(b) == 0 || b[0] != recordVersion {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %s", bourse.Quoted(string(b)))
	}
	if err := json.Unmarshal(b[1:], v); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "damaged record: %w", err)
	}
	return nil
}

// putRecord encodes v under key.
func (t *Tx) putRecord(bucket string, key []byte, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return t.put(bucket, key, b)
}

// record decodes what is under key into v; false when there is nothing.
func (t *Tx) record(bucket string, key []byte, v any) (bool, error) {
	b := t.get(bucket, key)
	if b == nil {
		return false, nil
	}
	return true, decode(b, v)
}
