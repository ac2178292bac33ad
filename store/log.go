package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Entry is one line of the operations log: a transition of a resource.
type Entry struct {
	Seq    uint64          `json:"seq"` // set by Append; grows by one
	At     time.Time       `json:"at"`
	Kind   string          `json:"kind"` // of the resource; KindMachine
	ID     string          `json:"id"`   // of the resource
	Run    string          `json:"run,omitempty"`
	Type   string          `json:"type"`
	From   string          `json:"from,omitempty"`
	To     string          `json:"to,omitempty"`
	Source string          `json:"source,omitempty"`
	Event  bourse.EventID  `json:"event,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"`
}

// keyLogged has the number of the last entry that was ever written.
var keyLogged = []byte("logged")

// KindMachine is the kind of the entries about machines, which DeleteMachine
// takes with it.
const KindMachine = "machine"

// Append writes an entry at the end of the log and gives it with its number.
func (t *Tx) Append(e Entry) (Entry, error) {
	prefix, err := logPrefix(e.Kind, e.ID)
	if err != nil {
		return e, err
	}
	e.Seq = uint64Of(t.get(bucketMeta, keyLogged)) + 1
	if err := t.put(bucketMeta, keyLogged, uint64Bytes(e.Seq)); err != nil {
		return e, err
	}
	seq := uint64Bytes(e.Seq)
	if err := t.put(bucketLogOf, append(prefix, seq...), []byte{}); err != nil {
		return e, err
	}
	return e, t.putRecord(bucketLog, seq, e)
}

// logPrefix begins the keys of a resource's entries in log_of.
func logPrefix(kind, id string) ([]byte, error) {
	k, err := key(kind, id)
	return append(k, 0), err
}

// Entries gives the newest entries of a resource, newest first; all when limit
// is not positive.
func (t *Tx) Entries(kind, id string, limit int) ([]Entry, error) {
	prefix, err := logPrefix(kind, id)
	if err != nil {
		return nil, err
	}
	var out []Entry
	c := t.cursor(bucketLogOf)
	// Prefixes end with a zero byte, so no key is between them and end without
	// having the prefix.
	end := append(bytes.Clone(prefix[:len(prefix)-1]), 1)
	for k, _ := c.Before(end); bytes.HasPrefix(k, prefix) && (limit <= 0 || len(out) < limit); k, _ = c.Prev() {
		var e Entry
		ok, err := t.record(bucketLog, k[len(prefix):], &e)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// Since gives the entries after number seq, oldest first, at most limit of
// them; all when limit is not positive.
func (t *Tx) Since(seq uint64, limit int) ([]Entry, error) {
	var out []Entry
	for _, v := range t.from(bucketLog, uint64Bytes(seq+1)) {
		if limit > 0 && len(out) == limit {
			break
		}
		var e Entry
		if err := decode(v, &e); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// deleteEntries removes the log of a resource.
func (t *Tx) deleteEntries(kind, id string) error {
	prefix, err := logPrefix(kind, id)
	if err != nil {
		return err
	}
	var numbers [][]byte
	for number := range t.under(bucketLogOf, prefix) {
		numbers = append(numbers, bytes.Clone(number))
	}
	for _, number := range numbers {
		if err := t.delete(bucketLogOf, slices.Concat(prefix, number)); err != nil {
			return err
		}
		if err := t.delete(bucketLog, number); err != nil {
			return err
		}
	}
	return nil
}
