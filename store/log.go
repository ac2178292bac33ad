package store

import (
	"bytes"

	"github.com/bourse-dev/bourse"
)

// Entry is an entry of the operations log. It describes a state transition of a machine or volume.
type Entry struct {
	Seq   uint64       `json:"seq"`  // number of the entry, one greater than the previous entry's; set by Append
	Kind  string       `json:"kind"` // kind of resource: KindMachine or KindVolume
	ID    string       `json:"id"`   // ID of the resource
	Run   string       `json:"run,omitempty"`
	Event bourse.Event `json:"event"` // for a volume, the event has no ID, and its state is a volume state
}

// keyLogged is the key under which bucketMeta stores the number of the last log entry.
var keyLogged = []byte("logged")

// KindMachine is the Kind of log entries about machines. DeleteMachine deletes a machine's entries
// together with its record.
const KindMachine = "machine"

// Append adds an entry to the end of the log, and returns the entry with its number set.
func (t *Tx) Append(e Entry) (Entry, error) {
	if _, err := key(e.Kind, e.ID); err != nil {
		return e, err
	}
	e.Seq = uint64Of(t.kv.Get(bucketMeta, keyLogged)) + 1
	if err := t.kv.Put(bucketMeta, keyLogged, uint64Bytes(e.Seq)); err != nil {
		return e, err
	}
	return e, entries.swap(t, uint64Bytes(e.Seq), nil, &e)
}

// logPrefix returns the prefix of a resource's keys in the bucket log_of.
func logPrefix(kind, id string) []byte { return []byte(kind + "\x00" + id + "\x00") }

var entries = table[Entry]{bucketLog, entryKeys, nil}

func entryKeys(e *Entry) []entry {
	return []entry{{bucketLogOf, append(logPrefix(e.Kind, e.ID), uint64Bytes(e.Seq)...), []byte{}, ""}}
}

// Entries returns the latest entries of a resource, newest first. It returns at most limit
// entries, or all of them if limit is not positive.
func (t *Tx) Entries(kind, id string, limit int) ([]Entry, error) {
	prefix := logPrefix(kind, id)
	var out []Entry
	// The prefix ends with a zero byte. Replacing that byte with a one results in a key that sorts
	// after all keys with the prefix.
	end := append(bytes.Clone(prefix[:len(prefix)-1]), 1)
	for k := range t.kv.RangeBack(bucketLogOf, end) {
		if !bytes.HasPrefix(k, prefix) || limit > 0 && len(out) == limit {
			break
		}
		e, ok, err := entries.get(t, k[len(prefix):])
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// deleteEntries deletes all log entries of a resource.
func (t *Tx) deleteEntries(kind, id string) error {
	var numbers [][]byte
	for number := range t.keysBelow(bucketLogOf, logPrefix(kind, id)) {
		numbers = append(numbers, bytes.Clone(number))
	}
	for _, number := range numbers {
		if err := entries.swap(t, number, &Entry{Seq: uint64Of(number), Kind: kind, ID: id}, nil); err != nil {
			return err
		}
	}
	return nil
}
