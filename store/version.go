package store

import (
	"bytes"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits on the recorded versions of each machine: their number, and their approximate total size
// in bytes.
const (
	maxVersions     = 20
	maxVersionBytes = 256 << 10
)

var versions = table[bourse.Version]{bucket: bucketVersions}

func versionPrefix(id bourse.MachineID) []byte { return []byte(string(id) + "\x00") }

// RecordVersion records the config of m's current version, unless that version is already recorded. Call it before each
// change to the config or the version. If the recorded versions then exceed maxVersions or maxVersionBytes,
// RecordVersion deletes the oldest ones.
func (t *Tx) RecordVersion(m *bourse.Machine) error {
	if _, err := key(string(m.ID), string(m.Instance)); err != nil {
		return err
	}
	k := append(versionPrefix(m.ID), m.Instance...)
	if t.kv.Get(bucketVersions, k) != nil {
		return nil
	}
	if err := versions.put(t, k, &bourse.Version{Instance: m.Instance, Config: m.Config, At: time.Now().UTC()}); err != nil {
		return err
	}
	n, size, old := 0, 0, [][]byte(nil)
	for k, stored := range t.versionsOf(m.ID) {
		n, size = n+1, size+len(stored)
		if n > maxVersions || n > 1 && size > maxVersionBytes {
			old = append(old, bytes.Clone(k))
		}
	}
	return t.dropVersions(old)
}

// Versions returns the recorded versions of a machine, newest first.
func (t *Tx) Versions(id bourse.MachineID) ([]bourse.Version, error) {
	var out []bourse.Version
	for _, stored := range t.versionsOf(id) {
		var v bourse.Version
		if err := decode(stored, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// versionsOf returns the keys and encoded records of a machine's versions, newest first. It relies
// on the fact that instance ids sort by creation time.
func (t *Tx) versionsOf(id bourse.MachineID) func(func(k, v []byte) bool) {
	prefix := versionPrefix(id)
	end := append(bytes.Clone(prefix[:len(prefix)-1]), 1)
	return func(yield func(k, v []byte) bool) {
		for k, v := range t.kv.RangeBack(bucketVersions, end) {
			if !bytes.HasPrefix(k, prefix) || !yield(k, v) {
				return
			}
		}
	}
}

func (t *Tx) dropVersions(keys [][]byte) error {
	for _, k := range keys {
		if err := versions.delete(t, k); err != nil {
			return err
		}
	}
	return nil
}

// deleteVersions deletes all recorded versions of a machine. It is called when the machine is
// destroyed, because the versions' configs may contain files that are large or secret.
func (t *Tx) deleteVersions(id bourse.MachineID) error {
	var all [][]byte
	for k := range t.versionsOf(id) {
		all = append(all, bytes.Clone(k))
	}
	return t.dropVersions(all)
}
