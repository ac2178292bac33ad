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
// Errors: CodeInternal if a machine in the recorded state cannot change to the new state, or a
// value is out of range; CodeAlreadyExists if another live machine has the name in the app, or
// the port.
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

// MaxDestroyedBytes limits the total size of destroyed machines' records. If it is exceeded when a machine
// is destroyed, the oldest records are deleted.
const MaxDestroyedBytes = 64 << 20

const (
	keyDestroyedBytes = "gone_bytes"
	// maxMachineEvictions is the maximum number of records that are deleted when a machine is destroyed.
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
		return bourse.Errorf(bourse.CodeInternal, "record of machine %s: task %s", m.ID, bourse.Quoted(c.Name))
	}
	if m.Boot.Port < 0 || m.Boot.Port > 65535 {
		return bourse.Errorf(bourse.CodeInternal, "record of machine %s: port %d", m.ID, m.Boot.Port)
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

// MachineNamed returns the ID of an app's live machine with the given name, and whether there is one.
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

// CountMachines returns the number of an app's machines that are not destroyed. It includes
// machines whose records contain only the app's name and not its ID, because they may belong to
// the app.
func (t *Tx) CountMachines(app bourse.App) int {
	n := 0
	for _, space := range appKeysOf(&app) {
		n += int(uint64Of(t.kv.Get(bucketMachineLiving, []byte(space))))
	}
	return n
}

// PortUser returns the ID of the live machine that uses a port, and whether there is one.
func (t *Tx) PortUser(port int) (bourse.MachineID, bool) {
	id := t.kv.Get(bucketMachinePort, portKey(port))
	return bourse.MachineID(id), id != nil
}

// HasFreePort reports whether there is a port between first and last, inclusive, that no live
// machine uses.
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

// Committed returns, for each resource, the sum of the amounts that machines, volumes, tasks and
// holds take. Since it includes expired holds, use CommittedAt for decisions.
func (t *Tx) Committed() (bourse.Amounts, error) {
	var sum bourse.Amounts
	for k, v := range t.kv.Range(bucketCommitted, nil) {
		if len(v) != 8 {
			return nil, bourse.Errorf(bourse.CodeInternal, "damaged sum of %s", bourse.Quoted(string(k)))
		}
		sum = append(sum, bourse.Amount{Resource: bourse.Resource(k), Amount: int64(uint64Of(v))})
	}
	return sum, nil
}
