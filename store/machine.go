package store

import (
	"bytes"
	"errors"
	"iter"

	"github.com/bourse-dev/bourse"
)

// Machine returns a machine's record. It returns CodeNotFound if there is no such machine.
func (t *Tx) Machine(id bourse.MachineID) (bourse.Machine, error) {
	m, ok, err := machines.get(t, []byte(id))
	if err == nil && !ok {
		err = errNoMachine
	}
	return m, err
}

var errNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// PutMachine inserts or replaces a machine's record and updates the indexes and the committed sums. The machine's
// events are not stored.
//
// Errors: CodeInternal if the transition from the recorded state to the new one is not allowed, or
// if a value is out of range; CodeAlreadyExists if another live machine has the same port, or the
// same name in the app.
func (t *Tx) PutMachine(m *bourse.Machine) error {
	now := *m
	now.LastEvents = nil
	if err := validMachine(&now); err != nil {
		return err
	}
	old, ok, err := machines.get(t, []byte(now.ID))
	switch {
	case err != nil:
		return err
	case old.State != now.State && !old.State.CanBecome(now.State):
		return bourse.Errorf(bourse.CodeInternal, "machine %s cannot change from %q to %q", now.ID, old.State, now.State)
	case now.State == bourse.StateDestroyed && old.State != now.State:
		if err := errors.Join(t.deleteVersions(now.ID), t.kv.Delete(bucketAppKeys, []byte(now.ID))); err != nil {
			return err
		}
	}
	if !ok {
		return machines.swap(t, []byte(now.ID), nil, &now)
	}
	return errors.Join(machines.swap(t, []byte(now.ID), &old, &now), t.evictMachines())
}

// MaxDestroyedBytes is the maximum total size of destroyed machines' records, in bytes. If the records exceed it after
// a machine is destroyed, the oldest ones are deleted.
const MaxDestroyedBytes = 64 << 20

const (
	keyDestroyedBytes = "gone_bytes"
	// maxMachineEvictions is the maximum number of old records that are deleted each time a machine is
	// destroyed.
	maxMachineEvictions = 64
)

// destroyedSize returns the size of a destroyed machine's record.
func destroyedSize(m *bourse.Machine) int64 {
	b, err := encode(m)
	if err != nil {
		return 0 // a record that cannot be encoded cannot be stored either
	}
	return int64(len(b))
}

// evictMachines deletes the oldest records of destroyed machines until their total size is at most MaxDestroyedBytes,
// or until it has deleted maxMachineEvictions records.
func (t *Tx) evictMachines() error {
	var old []string
	kept := t.destroyedBytes()
	for k, size := range t.kv.Range(bucketMachineDestroyed, nil) {
		if kept <= MaxDestroyedBytes || len(old) == maxMachineEvictions {
			break
		}
		_, id := splitTimeKey(k)
		old = append(old, id)
		kept -= int64(uint64Of(size))
	}
	_, err := deleteEach(old, func(id string) error { return t.DeleteMachine(bourse.MachineID(id)) })
	return err
}

func (t *Tx) destroyedBytes() int64 {
	return int64(uint64Of(t.kv.Get(bucketMeta, []byte(keyDestroyedBytes))))
}

func validMachine(m *bourse.Machine) error {
	errs := []error{m.ID.Validate(), m.App.Validate(), m.Takes.Validate()}
	if m.Name != "" {
		errs = append(errs, bourse.ValidateMachineName(m.Name))
	}
	for _, err := range errs {
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "record of machine %s: %w", bourse.Quoted(string(m.ID)), err)
		}
	}
	if c := m.Config.Task; c != nil && bourse.ValidateTaskName(c.Name) != nil {
		return bourse.Errorf(bourse.CodeInternal, "record of machine %s: invalid task name %s", m.ID, bourse.Quoted(c.Name))
	}
	if m.Boot.Port < 0 || m.Boot.Port > 65535 {
		return bourse.Errorf(bourse.CodeInternal, "record of machine %s: invalid port %d", m.ID, m.Boot.Port)
	}
	return nil
}

// DeleteMachine deletes a machine's record, its index entries and its log entries. It returns
// CodeFailedPrecondition if the machine is not destroyed, and CodeNotFound if there is no such
// machine.
func (t *Tx) DeleteMachine(id bourse.MachineID) error {
	old, err := t.Machine(id)
	switch {
	case err != nil:
		return err
	case old.State != bourse.StateDestroyed:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, not destroyed", id, old.State)
	}
	if err := t.deleteEntries(KindMachine, string(id)); err != nil {
		return err
	}
	return machines.swap(t, []byte(id), &old, nil)
}

// Machines returns all machines sorted by id, including destroyed ones.
func (t *Tx) Machines() iter.Seq2[bourse.Machine, error] { return machines.all(t) }

// MachinesOf returns all machines of an app sorted by id, including destroyed ones.
func (t *Tx) MachinesOf(app bourse.App) iter.Seq2[bourse.Machine, error] {
	return machines.ofApp(t, bucketMachineApp, &app, func(m *bourse.Machine) bool { return m.OwnedBy(&app) })
}

// MachineNamed returns the ID of an app's live machine with the given name, and whether there is such a machine.
func (t *Tx) MachineNamed(app bourse.App, name string) (bourse.MachineID, bool, error) {
	for _, space := range appKeysOf(&app) {
		k, err := key(space, name)
		if err != nil {
			return "", false, err
		}
		id := bourse.MachineID(t.kv.Get(bucketMachineName, k))
		if id == "" {
			continue
		}
		if space == app.ID {
			return id, true, nil
		}
		if m, err := t.Machine(id); err != nil || m.OwnedBy(&app) {
			return id, err == nil, err
		}
	}
	return "", false, nil
}

// CountMachines returns the number of an app's live machines. It includes machines whose records contain the app's name
// but no app ID, because they may belong to the app.
func (t *Tx) CountMachines(app bourse.App) int {
	n := 0
	for _, space := range appKeysOf(&app) {
		n += int(uint64Of(t.kv.Get(bucketMachineLiving, []byte(space))))
	}
	return n
}

// PortUser returns the ID of the live machine that uses the port, and whether there is such a machine.
func (t *Tx) PortUser(port int) (bourse.MachineID, bool) {
	id := t.kv.Get(bucketMachinePort, portKey(port))
	return bourse.MachineID(id), id != nil
}

// HasFreePort reports whether at least one port from first to last, inclusive, is not used by a
// live machine.
func (t *Tx) HasFreePort(first, last int) bool {
	next := first
	for k := range t.kv.Range(bucketMachinePort, portKey(first)) {
		if !bytes.Equal(k, portKey(next)) {
			break
		}
		next++
	}
	return next <= last
}

// Committed returns the total amount of each resource that machines, volumes, tasks and holds take.
// It includes expired holds. To decide whether an order fits, use CommittedAt.
func (t *Tx) Committed() (bourse.Amounts, error) {
	var sum bourse.Amounts
	for k, v := range t.kv.Range(bucketCommitted, nil) {
		if len(v) != 8 {
			return nil, bourse.Errorf(bourse.CodeInternal, "damaged sum of committed %s", bourse.Quoted(string(k)))
		}
		sum = append(sum, bourse.Amount{Resource: bourse.Resource(k), Amount: int64(uint64Of(v))})
	}
	return sum, nil
}
