package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store/kv"
)

// The first byte of records before version 9 of the schema.
const (
	formJSON = 1 // JSON follows; of a run, three parts
	formTask = 2 // fields of protocol buffers: an order for a place on a warm machine
)

// recordBuckets are the buckets of records, with what read their values before
// version 9.
var recordBuckets = []struct {
	name string
	read func([]byte) (any, error)
}{
	{bucketMachines, readJSON[bourse.Machine]},
	{bucketVolumes, readJSON[bourse.Volume]},
	{bucketHolds, readJSON[bourse.Hold]},
	{bucketApps, readJSON[bourse.App]},
	{bucketOrders, readOldOrder},
	{bucketLog, readOldEntry},
	{bucketRuns, readOldRun},
}

// recordsToCBOR writes all records in the form of version 9. Those that have it
// stay as they are, so that a damaged file of either version can be salvaged.
func recordsToCBOR(t kv.Tx) error {
	for _, b := range recordBuckets {
		err := rewrite(t, b.name, func(_, v []byte) ([]byte, error) { return toCBOR(v, b.read) })
		if err != nil {
			return err
		}
	}
	if v := t.Get(bucketMeta, keyIdentity); v != nil {
		now, err := toCBOR(v, readJSON[Identity])
		if err != nil {
			return err
		}
		if err := t.Put(bucketMeta, keyIdentity, now); err != nil {
			return err
		}
	}
	return resizeTasks(t)
}

func toCBOR(v []byte, read func([]byte) (any, error)) ([]byte, error) {
	if len(v) > 0 && v[0] == recordForm {
		return v, nil
	}
	rec, err := read(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "damaged record %s: %w", bourse.Quoted(string(v[:min(len(v), 64)])), err)
	}
	return encode(rec)
}

// resizeTasks accounts for what ended tasks take, as it is counted now.
func resizeTasks(t kv.Tx) error {
	var total uint64
	err := rewrite(t, bucketTaskTime, func(k, _ []byte) ([]byte, error) {
		_, id := splitTimeKey(k)
		var o OrderRecord
		if err := decode(t.Get(bucketOrders, []byte(id)), &o); err != nil {
			return nil, err
		}
		if o.Task == nil {
			return nil, bourse.Errorf(bourse.CodeInternal, "order %s has ended as a task, and is none", id)
		}
		total += uint64(o.Task.size())
		return uint64Bytes(uint64(o.Task.size())), nil
	})
	if err != nil || total == 0 {
		return err
	}
	return t.Put(bucketMeta, []byte(keyTaskBytes), uint64Bytes(total))
}

// rewriteAtOnce bounds how many keys are read before they are written again.
const rewriteAtOnce = 1000

// rewrite replaces every value of a bucket.
func rewrite(t kv.Tx, bucket string, value func(k, v []byte) ([]byte, error)) error {
	var next []byte
	for {
		var keys, values [][]byte // nothing is written while a bucket is ranged over
		for k, v := range t.Range(bucket, next) {
			now, err := value(k, v)
			if err != nil {
				return err
			}
			if keys, values = append(keys, bytes.Clone(k)), append(values, bytes.Clone(now)); len(keys) == rewriteAtOnce {
				break
			}
		}
		if len(keys) == 0 {
			return nil
		}
		for i, k := range keys {
			if err := t.Put(bucket, k, values[i]); err != nil {
				return err
			}
		}
		next = append(keys[len(keys)-1], 0)
	}
}

func readJSON[T any](b []byte) (any, error) { return parseJSON[T](b) }

func parseJSON[T any](b []byte) (v T, err error) {
	if len(b) == 0 || b[0] != formJSON {
		return v, errOldForm
	}
	err = json.Unmarshal(b[1:], &v)
	return v, err
}

var errOldForm = bourse.Errorf(bourse.CodeInternal, "it has no form of a release before version 9")

// oldEntry is an entry of the log before version 9.
type oldEntry struct {
	Seq    uint64           `json:"seq"`
	At     time.Time        `json:"at"`
	Kind   string           `json:"kind"`
	ID     string           `json:"id"`
	Run    string           `json:"run"`
	Type   bourse.EventType `json:"type"`
	From   bourse.State     `json:"from"`
	To     bourse.State     `json:"to"`
	Source bourse.Source    `json:"source"`
	Event  bourse.EventID   `json:"event"`
	Detail struct {
		Instance bourse.InstanceID `json:"instance"`
		Exit     *bourse.ExitEvent `json:"exit"`
		Pull     *bourse.PullEvent `json:"pull"`
	} `json:"detail"`
}

func readOldEntry(b []byte) (any, error) {
	e, err := parseJSON[oldEntry](b)
	return Entry{Seq: e.Seq, Kind: e.Kind, ID: e.ID, Run: e.Run, Event: bourse.Event{
		ID: e.Event, Type: e.Type, From: e.From, State: e.To, Source: e.Source, At: e.At,
		Instance: e.Detail.Instance, Exit: e.Detail.Exit, Pull: e.Detail.Pull,
	}}, err
}

// readOldRun reads a run of version 8: its record without request and result, as
// JSON, the request, and the result, each with its length as a uvarint before it.
func readOldRun(b []byte) (any, error) {
	var rec fsm.Record
	if len(b) == 0 || b[0] != formJSON {
		return rec, errOldForm
	}
	b = b[1:]
	var parts [3][]byte
	for i := range parts {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return rec, errOldForm
		}
		parts[i], b = b[size:size+int(n)], b[size+int(n):]
	}
	if len(b) > 0 {
		return rec, errOldForm
	}
	err := json.Unmarshal(parts[0], &rec)
	if len(parts[1]) > 0 {
		rec.Request = parts[1]
	}
	if len(parts[2]) > 0 {
		rec.Result = parts[2]
	}
	return rec, err
}

// readOldOrder reads an order of version 8.
func readOldOrder(b []byte) (any, error) {
	if len(b) == 0 || b[0] != formTask {
		return readJSON[OrderRecord](b)
	}
	o := OrderRecord{Task: &TaskRecord{}}
	err := oldFields(b[1:], func(number int, text []byte, n int64) (err error) {
		switch number {
		case 1:
			o.ID = bourse.OrderID(text)
		case 2:
			o.At = time.Unix(0, n).UTC()
		case 3:
			o.Task.App = bourse.AppName(text)
		case 4:
			var a bourse.Amount
			err = oldFields(text, func(number int, text []byte, n int64) error {
				if number == 1 {
					a.Resource = bourse.Resource(text)
				} else {
					a.Amount = n
				}
				return nil
			})
			o.Task.Takes = append(o.Task.Takes, a)
		case 5:
			err = readOldResult(text, &o.Task.Result)
		case 6:
			o.Task.AppID = string(text)
		}
		return err
	})
	return o, err
}

func readOldResult(b []byte, r *bourse.TaskResult) error {
	return oldFields(b, func(number int, text []byte, n int64) error {
		switch number {
		case 1:
			r.Order = bourse.OrderID(text)
		case 2:
			r.Name = string(text)
		case 3:
			r.Worker = bourse.WorkerID(text)
		case 4:
			r.Region = bourse.Region(text)
		case 5:
			r.Machine = bourse.MachineID(text)
		case 6:
			r.End = bourse.TaskEnd(text)
		case 7:
			r.ExitCode = int(n)
		case 8:
			r.Status = int(n)
		case 9:
			r.Type = string(text)
		case 10:
			r.Answer = bytes.Clone(text)
		case 11:
			r.Error = string(text)
		case 12:
			r.StartedAt = time.Unix(0, n).UTC()
		case 13:
			r.Took = time.Duration(n)
		}
		return nil
	})
}

// oldFields calls a function with each field of a record: with its bytes, or with
// its number.
func oldFields(b []byte, field func(number int, text []byte, n int64) error) error {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errOldForm
		}
		b = b[size:]
		var text []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		default:
			return errOldForm
		}
		if size < 0 {
			return errOldForm
		}
		if err := field(int(number), text, protowire.DecodeZigZag(n)); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
