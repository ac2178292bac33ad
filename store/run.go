package store

import (
	"iter"

	"github.com/bourse-dev/bourse/fsm"
)

var runs = table[fsm.Record]{bucketRuns, runKeys, nil}

func runKeys(rec *fsm.Record) []entry {
	id, k := []byte(rec.ID), []byte(rec.Definition+"\x00"+rec.Resource+"\x00"+rec.ID)
	out := []entry{{bucketRunKey, id, k, ""}}
	if !rec.Status.Ended() {
		out = append(out, entry{bucketRunOpen, id, k, ""})
	}
	return out
}

// openRun returns the record of an unfinished run with the same definition, resource and ID as rec. It has every
// derived key that the stored record may have. Callers pass it to swap in place of the stored record, which therefore
// need not be read.
func openRun(rec *fsm.Record) *fsm.Record {
	return &fsm.Record{ID: rec.ID, Definition: rec.Definition, Resource: rec.Resource, Status: fsm.Running}
}

// PutRun inserts a run's record, replacing any record with the same definition, resource and id.
func (t *Tx) PutRun(rec fsm.Record) error {
	k, err := key(rec.Definition, rec.Resource, rec.ID)
	if err != nil {
		return err
	}
	if t.kv.Get(bucketRuns, k) == nil {
		return runs.swap(t, k, nil, &rec)
	}
	return runs.swap(t, k, openRun(&rec), &rec)
}

// DeleteRun deletes a run's record. It does nothing if there is no such record.
func (t *Tx) DeleteRun(rec fsm.Record) error {
	k, err := key(rec.Definition, rec.Resource, rec.ID)
	if err != nil {
		return err
	}
	return runs.swap(t, k, openRun(&rec), nil)
}

// Run returns the record of the run with this id, and whether it exists. The run may have ended.
func (t *Tx) Run(id string) (fsm.Record, bool, error) {
	k := t.kv.Get(bucketRunKey, []byte(id))
	if k == nil {
		return fsm.Record{}, false, nil
	}
	return runs.get(t, k)
}

// Runs returns all recorded runs, sorted by definition and resource, including those that have
// ended.
func (t *Tx) Runs() iter.Seq2[fsm.Record, error] { return runs.all(t) }

// unfinished returns the records of the runs that have not ended, oldest first.
func (t *Tx) unfinished() ([]fsm.Record, error) {
	var out []fsm.Record
	for _, at := range t.kv.Range(bucketRunOpen, nil) {
		rec, ok, err := runs.get(t, at)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, rec)
		}
	}
	return out, nil
}

// Journal returns a journal that lets an fsm engine record its runs in the store.
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
