package store

import (
	"bytes"
	"iter"
	"slices"

	"github.com/bourse-dev/bourse"
)

// table describes a bucket whose records all have type T. It also defines the index entries and
// sums that are derived from each record and change together with it.
type table[T any] struct {
	bucket string
	keys   func(*T) []entry
	sums   func(*T) []sumPart
}

// entry is a key-value pair of an index, derived from a record.
type entry struct {
	bucket     string
	key, value []byte
	conflict   string // part of the error message if another record has the key; "" if that is impossible
}

// sumPart is a record's contribution to a sum.
type sumPart struct {
	bucket, name string
	n            int64
}

// get reads a record. ok is false if there is no such record.
func (b *table[T]) get(t *Tx, key []byte) (v T, ok bool, err error) {
	stored := t.kv.Get(b.bucket, key)
	if stored == nil {
		return v, false, nil
	}
	return v, true, decode(stored, &v)
}

// all returns the records in key order. It stops at the first one that cannot be decoded.
func (b *table[T]) all(t *Tx) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, stored := range t.kv.Range(b.bucket, nil) {
			var v T
			err := decode(stored, &v)
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// put inserts or replaces a record.
func (b *table[T]) put(t *Tx, key []byte, v *T) error {
	old, ok, err := b.get(t, key)
	switch {
	case err != nil:
		return err
	case !ok:
		return b.swap(t, key, nil, v)
	}
	return b.swap(t, key, &old, v)
}

// delete removes a record. It does nothing if there is no such record.
func (b *table[T]) delete(t *Tx, key []byte) error {
	old, ok, err := b.get(t, key)
	if err != nil || !ok {
		return err
	}
	return b.swap(t, key, &old, nil)
}

// swap replaces the stored record. old must have the same derived keys and sums as the stored
// record, or be nil if no record is stored. now is the new record, or nil to remove the stored one.
// swap returns CodeAlreadyExists if another record already has one of the new record's derived
// keys.
func (b *table[T]) swap(t *Tx, key []byte, old, now *T) error {
	if b.keys != nil {
		var before, after []entry
		if old != nil {
			before = b.keys(old)
		}
		if now != nil {
			after = b.keys(now)
		}
		if err := t.replaceKeys(before, after); err != nil {
			return err
		}
	}
	if b.sums != nil {
		var before, after []sumPart
		if old != nil {
			before = b.sums(old)
		}
		if now != nil {
			after = b.sums(now)
		}
		if err := t.replaceParts(before, after); err != nil {
			return err
		}
	}
	if now == nil {
		return t.kv.Delete(b.bucket, key)
	}
	stored, err := encode(now)
	if err != nil {
		return err
	}
	return t.kv.Put(b.bucket, key, stored)
}

// derive computes the index entries and sums of all records in the table, and adds them to d.
func (b *table[T]) derive(t *Tx, d derivation) error {
	for v, err := range b.all(t) {
		if err != nil {
			return err
		}
		if b.keys != nil {
			for _, e := range b.keys(&v) {
				d.set(e.bucket, e.key, e.value)
			}
		}
		if b.sums != nil {
			for _, p := range b.sums(&v) {
				d.add(p)
			}
		}
	}
	return nil
}

// ofApp returns an app's records, sorted by id. index is the bucket that lists the records by app.
// owned must report whether a record belongs to this app rather than to a former app with the same
// name.
func (b *table[T]) ofApp(t *Tx, index string, app *bourse.App, owned func(*T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, space := range appKeysOf(app) {
			for id := range t.keysBelow(index, append([]byte(space), 0)) {
				v, _, err := b.get(t, id)
				if err == nil && !owned(&v) {
					continue // the record belongs to a former app with the same name
				}
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}

func (e entry) in(list []entry) bool {
	return slices.ContainsFunc(list, func(x entry) bool {
		return x.bucket == e.bucket && bytes.Equal(x.key, e.key) && bytes.Equal(x.value, e.value)
	})
}

// replaceKeys updates the indexes after a change to a record. before and after are the index
// entries derived from the record's old and new version.
func (t *Tx) replaceKeys(before, after []entry) error {
	for _, e := range before {
		if !e.in(after) {
			if err := t.kv.Delete(e.bucket, e.key); err != nil {
				return err
			}
		}
	}
	for _, e := range after {
		if e.in(before) {
			continue
		}
		if e.conflict != "" && t.kv.Get(e.bucket, e.key) != nil {
			return bourse.Errorf(bourse.CodeAlreadyExists, "another %s", e.conflict)
		}
		if err := t.kv.Put(e.bucket, e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// of returns the amount of the contribution in list that is added to the same sum as p. It returns
// 0 if there is no such contribution.
func (p sumPart) of(list []sumPart) int64 {
	i := slices.IndexFunc(list, func(x sumPart) bool { return x.bucket == p.bucket && x.name == p.name })
	if i < 0 {
		return 0
	}
	return list[i].n
}

// replaceParts updates the sums after a change to a record. before and after are the contributions
// of the record's old and new version.
func (t *Tx) replaceParts(before, after []sumPart) error {
	for _, p := range after {
		if err := t.add(p.bucket, p.name, p.n-p.of(before)); err != nil {
			return err
		}
	}
	for _, p := range before {
		if !slices.ContainsFunc(after, func(x sumPart) bool { return x.bucket == p.bucket && x.name == p.name }) {
			if err := t.add(p.bucket, p.name, -p.n); err != nil {
				return err
			}
		}
	}
	return nil
}

// add changes a sum by n. A sum of 0 is removed.
func (t *Tx) add(bucket, name string, n int64) error {
	if n == 0 {
		return nil
	}
	k, err := key(name)
	if err != nil {
		return err
	}
	have := int64(uint64Of(t.kv.Get(bucket, k)))
	sum := have + n
	switch {
	case sum < 0 || n > 0 && sum < have:
		return bourse.Errorf(bourse.CodeInternal, "sum of %s in %s is out of range: %d%+d", name, bucket, have, n)
	case sum == 0:
		return t.kv.Delete(bucket, k)
	}
	return t.kv.Put(bucket, k, uint64Bytes(uint64(sum)))
}

// committed converts the amounts that a record takes into the record's contributions to the sums of
// committed resources.
func committed(amounts bourse.Amounts) []sumPart {
	out := make([]sumPart, len(amounts), len(amounts)+1)
	for i, a := range amounts {
		out[i] = sumPart{bucketCommitted, string(a.Resource), a.Amount}
	}
	return out
}
