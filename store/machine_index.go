package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"time"

	"github.com/bourse-dev/bourse"
)

// facts is the part of a machine's record that indexes and sums are made of.
type facts struct {
	ID        bourse.MachineID `json:"id"`
	Name      string           `json:"name"`
	App       bourse.AppName   `json:"app"`
	AppID     string           `json:"app_id"`
	State     bourse.State     `json:"state"`
	Takes     bourse.Amounts   `json:"takes"`
	UpdatedAt time.Time        `json:"updated_at"`
	Boot      struct {
		Port int `json:"port"`
	} `json:"boot"`
	Config struct {
		Task *bourse.TaskConfig `json:"task"`
	} `json:"config"`
}

func factsOf(m *bourse.Machine) *facts {
	f := &facts{ID: m.ID, Name: m.Name, App: m.App, AppID: m.AppID, State: m.State, Takes: m.Takes, UpdatedAt: m.UpdatedAt}
	f.Boot.Port, f.Config.Task = m.Boot.Port, m.Config.Task
	return f
}

// facts reads those of a recorded machine, nil when there is none.
func (t *Tx) facts(id bourse.MachineID) (*facts, error) {
	var f facts
	ok, err := t.record(bucketMachines, []byte(id), &f)
	if err != nil || !ok {
		return nil, err
	}
	return &f, nil
}

func (f *facts) living() bool { return f != nil && f.State != bourse.StateDestroyed }

// space is what the keys of indexes call an app: its id, or its name in records
// that have no id. No id can be a name: it has capitals.
func space(name bourse.AppName, id string) string { return cmp.Or(id, string(name)) }

// spaces gives what the keys of indexes may call an app.
func spaces(app *bourse.App) []string {
	if app.ID == "" {
		return []string{string(app.Name)}
	}
	return []string{app.ID, string(app.Name)}
}

func portKey(port int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(port)) }

// indexEntry is one key of an index and its value.
type indexEntry struct {
	bucket     string
	key, value []byte
	taken      string // what is wrong when another record has the key; "" when none can
}

// index gives every index entry that a machine has, as its record stands.
func (f *facts) index() []indexEntry {
	if f == nil {
		return nil
	}
	id, app := []byte(f.ID), space(f.App, f.AppID)
	out := []indexEntry{{bucketMachineApp, append(append([]byte(app), 0), id...), []byte{}, ""}}
	if !f.living() {
		return append(out, indexEntry{bucketMachineGone, timeKey(f.UpdatedAt, string(f.ID)), []byte{}, ""})
	}
	if f.Name != "" {
		out = append(out, indexEntry{bucketMachineName, append(append([]byte(app), 0), f.Name...), id, "machine has this name"})
	}
	if c := f.Config.Task; c != nil {
		out = append(out, indexEntry{bucketMachineTask, []byte(app + "\x00" + c.Name + "\x00" + string(f.ID)), []byte{}, ""})
	}
	if f.Boot.Port != 0 {
		out = append(out, indexEntry{bucketMachinePort, portKey(f.Boot.Port), id, "machine has this port"})
	}
	return out
}

func (e indexEntry) in(list []indexEntry) bool {
	for _, x := range list {
		if x.bucket == e.bucket && bytes.Equal(x.key, e.key) && bytes.Equal(x.value, e.value) {
			return true
		}
	}
	return false
}

// reindex replaces what the old record contributes to indexes, counts and sums
// by what the new one does. Either may be nil.
func (t *Tx) reindex(old, now *facts) error {
	if err := t.replaceEntries(old.index(), now.index()); err != nil {
		return err
	}
	if err := t.recount(old, now); err != nil {
		return err
	}
	var before, after bourse.Amounts
	if old != nil {
		before = old.Takes
	}
	if now != nil {
		after = now.Takes
	}
	return t.resum(before, after)
}

// replaceEntries replaces the index entries that a record has had by those
// that it has now.
func (t *Tx) replaceEntries(before, after []indexEntry) error {
	for _, e := range before {
		if !e.in(after) {
			if err := t.delete(e.bucket, e.key); err != nil {
				return err
			}
		}
	}
	for _, e := range after {
		if e.in(before) {
			continue
		}
		if e.taken != "" && t.get(e.bucket, e.key) != nil {
			return bourse.Errorf(bourse.CodeAlreadyExists, "another %s", e.taken)
		}
		if err := t.put(e.bucket, e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) recount(old, now *facts) error {
	if old.living() && now.living() && old.App == now.App && old.AppID == now.AppID {
		return nil
	}
	if old.living() {
		if err := t.add(bucketMachineLiving, space(old.App, old.AppID), -1); err != nil {
			return err
		}
	}
	if now.living() {
		return t.add(bucketMachineLiving, space(now.App, now.AppID), 1)
	}
	return nil
}

// resum adds to each resource's sum what a record takes now and did not before,
// and takes away what it did.
func (t *Tx) resum(before, after bourse.Amounts) error {
	for _, x := range after {
		if err := t.add(bucketCommitted, string(x.Resource), x.Amount-before.Of(x.Resource)); err != nil {
			return err
		}
	}
	for _, x := range before {
		if !after.Has(x.Resource) {
			if err := t.add(bucketCommitted, string(x.Resource), -x.Amount); err != nil {
				return err
			}
		}
	}
	return nil
}

// add changes a sum by n; one that becomes 0 is removed.
func (t *Tx) add(bucket, name string, n int64) error {
	if n == 0 {
		return nil
	}
	k, err := key(name)
	if err != nil {
		return err
	}
	have := int64(uint64Of(t.get(bucket, k)))
	sum := have + n
	switch {
	case sum < 0 || n > 0 && sum < have:
		return bourse.Errorf(bourse.CodeInternal, "%s of %s: %d and %d", bucket, name, have, n)
	case sum == 0:
		return t.delete(bucket, k)
	}
	return t.put(bucket, k, uint64Bytes(uint64(sum)))
}
