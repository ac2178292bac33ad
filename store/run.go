package store

import (
	"bytes"
	"iter"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse/fsm"
)

// PutRun inserts the record of a run, or replaces that of the same definition,
// resource and id.
func (t *Tx) PutRun(rec fsm.Record) error {
	k, err := key(rec.Definition, rec.Resource, rec.ID)
	if err != nil {
		return err
	}
	id := []byte(rec.ID)
	switch fresh := t.get(bucketRuns, k) == nil; {
	case fresh:
		if err := t.put(bucketRunKey, id, k); err != nil {
			return err
		}
		if !rec.Status.Ended() {
			err = t.put(bucketRunOpen, id, k)
		}
	case rec.Status.Ended():
		err = t.delete(bucketRunOpen, id)
	}
	if err != nil {
		return err
	}
	b, err := encodeRun(rec)
	if err != nil {
		return err
	}
	return t.put(bucketRuns, k, b)
}

// DeleteRun removes the record of a run. One that is not there is no error.
func (t *Tx) DeleteRun(rec fsm.Record) error {
	k, err := key(rec.Definition, rec.Resource, rec.ID)
	if err != nil {
		return err
	}
	return t.deleteRun([]byte(rec.ID), k)
}

func (t *Tx) deleteRun(id, k []byte) error {
	for _, x := range []struct {
		bucket string
		key    []byte
	}{{bucketRuns, k}, {bucketRunKey, id}, {bucketRunOpen, id}} {
		if err := t.delete(x.bucket, x.key); err != nil {
			return err
		}
	}
	return nil
}

// Run finds a run by its id, ended ones included while they are kept.
func (t *Tx) Run(id string) (fsm.Record, bool, error) {
	var rec fsm.Record
	k := t.get(bucketRunKey, []byte(id))
	if k == nil {
		return rec, false, nil
	}
	b := t.get(bucketRuns, k)
	if b == nil {
		return rec, false, nil
	}
	rec, err := decodeRun(b)
	return rec, true, err
}

// Runs gives every run that is kept, by definition and resource.
func (t *Tx) Runs() iter.Seq2[fsm.Record, error] {
	return func(yield func(fsm.Record, error) bool) {
		for _, v := range t.from(bucketRuns, nil) {
			rec, err := decodeRun(v)
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// unfinished gives the runs that have not ended, in the order of creation.
func (t *Tx) unfinished() ([]fsm.Record, error) {
	var out []fsm.Record
	for _, at := range t.from(bucketRunOpen, nil) {
		b := t.get(bucketRuns, at)
		if b == nil {
			continue
		}
		rec, err := decodeRun(b)
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// PruneRuns forgets at most most runs that ended before a time, oldest first,
// and tells how many.
func (t *Tx) PruneRuns(before time.Time, most int) (int, error) {
	type place struct{ id, key []byte }
	var old []place
	for id, k := range t.from(bucketRunKey, nil) {
		// The engine makes the ids, and in order: what follows is younger.
		if u, err := ulid.ParseStrict(string(id)); len(old) == most || err == nil && u.Timestamp().After(before) {
			break
		}
		if t.get(bucketRunOpen, id) != nil {
			continue
		}
		rec, err := decodeRun(t.get(bucketRuns, k))
		if err != nil {
			return 0, err
		}
		if rec.UpdatedAt.Before(before) {
			old = append(old, place{bytes.Clone(id), bytes.Clone(k)})
		}
	}
	for _, x := range old {
		if err := t.deleteRun(x.id, x.key); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

// Journal gives the store as the journal of an engine.
func (s *Store) Journal() fsm.Journal { return journal{s} }

type journal struct{ s *Store }

var _ fsm.Journal = journal{}

func (j journal) Submit(fn func(fsm.Tx) error) fsm.Commit {
	return j.s.Submit(func(t *Tx) error { return fn(t) })
}

func (j journal) Unfinished() (out []fsm.Record, err error) {
	err = j.s.View(func(t *Tx) error { out, err = t.unfinished(); return err })
	return out, err
}

func (j journal) Run(id string) (rec fsm.Record, ok bool, err error) {
	err = j.s.View(func(t *Tx) error { rec, ok, err = t.Run(id); return err })
	return rec, ok, err
}
