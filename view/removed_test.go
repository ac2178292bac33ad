package view

import (
	"bytes"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// life returns a transaction that worker w2 publishes in an epoch. It contains one machine.
func life(t *testing.T, epoch uint64, seq uint64, key string) []byte {
	t.Helper()
	b, err := wire.Encode(&wire.Transaction{
		Position: wire.Position{Stream: wire.Stream{Site: "w2", Epoch: epoch}, Seq: seq}, At: int64(epoch) * int64(time.Millisecond),
		Rows: []wire.Row{{Table: wire.TableMachines, Key: key, Columns: map[string]wire.Value{"app": "shop"}}},
	}, testSeal())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// machines returns the number of machine rows.
func (r *member) machines() int {
	for _, t := range r.Health().Tables {
		if t.Table == wire.TableMachines {
			return t.Rows
		}
	}
	return 0
}

// TestRowsOfARemovedWorkerAreDeleted checks that the rows that a worker wrote before it was
// removed are deleted, and that neither other members nor a restart restores them. Rows of a
// later epoch are accepted.
func TestRowsOfARemovedWorkerAreDeleted(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Site: "b1", Path: path})
	now := m.config.Now()
	epoch := uint64(now.Add(-time.Hour).UnixMilli())
	first, late := life(t, epoch, 1, "00000200000001"), life(t, epoch, 2, "00000200000002")
	m.take(first)
	var snapshot bytes.Buffer
	if err := m.Snapshot(t.Context(), wire.Stream{Site: "w2", Epoch: epoch}, &snapshot); err != nil {
		t.Fatal(err)
	}
	if m.machines() != 1 {
		t.Fatal("the machine is missing")
	}
	m.publish(inventory.RemovedRow(&bourse.Member{ID: "w2", Region: "gru", Tag: 2}, now))
	if n := m.machines(); n != 0 {
		t.Errorf("%d machines of a removed worker", n)
	}
	m.take(late)
	if err := m.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: epoch}, bytes.NewReader(snapshot.Bytes())); err != nil {
		t.Fatal(err)
	}
	if n := m.machines(); n != 0 {
		t.Errorf("%d machines were restored by others", n)
	}
	m.sound()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, Config{Site: "b1", Path: path})
	m.take(life(t, epoch, 3, "00000200000003"))
	if n := m.machines(); n != 0 {
		t.Errorf("%d machines after a restart", n)
	}
	m.take(life(t, uint64(now.Add(time.Second).UnixMilli()), 1, "00000200000004"))
	if n := m.machines(); n != 1 {
		t.Errorf("%d machines of a worker that has returned, want 1", n)
	}
	m.sound()
}

// TestARemovedWorkerStartsANewEpoch checks that a worker that learns that it was removed starts
// a new epoch and publishes all of its rows.
func TestARemovedWorkerStartsANewEpoch(t *testing.T) {
	w, broker := startMember(t, Config{Site: "w2"}), startMember(t, Config{Site: "b1"})
	broker.publish(inventory.RemovedRow(&bourse.Member{ID: "w2"}, broker.config.Now().Add(time.Second)))
	var shared bytes.Buffer
	if err := broker.SharedSnapshot(t.Context(), &shared); err != nil {
		t.Fatal(err)
	}
	before, lost := w.Self().Stream, w.RowsLost()
	if err := w.RestoreShared(t.Context(), bytes.NewReader(shared.Bytes())); err != nil {
		t.Fatal(err)
	}
	after := w.Self().Stream
	if after.Epoch <= before.Epoch {
		t.Fatalf("the worker continues in epoch %d", after.Epoch)
	}
	<-lost
	if err := w.RestoreShared(t.Context(), bytes.NewReader(shared.Bytes())); err != nil {
		t.Fatal(err)
	}
	if w.Self().Stream != after {
		t.Error("the worker starts a new epoch each time that it receives the row")
	}
}

// TestTheLaterRemovalOfAWorkerWins checks that, of two brokers' removals of a worker, the one
// with the later epoch wins, regardless of the brokers' clocks.
func TestTheLaterRemovalOfAWorkerWins(t *testing.T) {
	row := func(until int64, clock wire.Clock) wire.Version {
		return wire.Version{Table: wire.TableRemoved, Key: "w2", Shared: true, Clock: clock, Columns: wire.Columns{{Name: "until", Value: until}}}
	}
	if wire.Order(row(2, 1), row(1, 9)) <= 0 || wire.Order(row(1, 9), row(2, 1)) >= 0 || wire.Order(row(1, 2), row(1, 1)) <= 0 {
		t.Error("removed rows would become valid again")
	}
}
