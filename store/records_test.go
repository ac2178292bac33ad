package store

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

func TestIdentityAndApps(t *testing.T) {
	s := open(t)
	at := time.Unix(1e9, 0).UTC()
	id := Identity{Worker: "w1", Tag: 7, Region: "gru", CreatedAt: at}
	apps := []bourse.App{{Name: "a", ID: "1", CreatedAt: at, DeletedAt: &at}, {Name: "b", ID: "2", CreatedAt: at}}
	update(t, s, func(tx *Tx) error {
		if _, ok, err := tx.Identity(); ok || err != nil {
			t.Errorf("identity of a new store: %t %v", ok, err)
		}
		for _, a := range apps {
			if err := tx.PutApp(a); err != nil {
				return err
			}
		}
		return tx.PutIdentity(id)
	})
	view(t, s, func(tx *Tx) error {
		if got, ok, err := tx.Identity(); !ok || err != nil || got != id {
			t.Errorf("identity %v %t %v", got, ok, err)
		}
		if _, ok, err := tx.App("none"); ok || err != nil {
			t.Errorf("app that does not exist: found %t, %v", ok, err)
		}
		var got []bourse.App
		for a, err := range tx.Apps() {
			if err != nil {
				return err
			}
			got = append(got, a)
		}
		if diff := cmp.Diff(apps, got); diff != "" {
			t.Errorf("apps (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestHostileKeys(t *testing.T) {
	s := open(t)
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", 2000)} {
		for name, fn := range map[string]func(*Tx) error{
			"app":   func(tx *Tx) error { return tx.PutApp(bourse.App{Name: bourse.AppName(bad)}) },
			"order": func(tx *Tx) error { return tx.PutOrder(OrderRecord{ID: bourse.OrderID(bad)}) },
			"log":   func(tx *Tx) error { _, err := tx.Append(Entry{Kind: "x", ID: bad}); return err },
			"run":   func(tx *Tx) error { return tx.PutRun(fsm.Record{ID: "1", Definition: "d", Resource: bad}) },
			"machine": func(tx *Tx) error {
				m := machine(1, bourse.StateCreated)
				m.ID = bourse.MachineID(bad)
				return tx.PutMachine(m)
			},
		} {
			if err := s.Update(t.Context(), fn); err == nil {
				t.Errorf("%s with key %q was stored", name, bad)
			}
		}
		for name, got := range map[string]any{
			"machine": func() error {
				return s.View(func(tx *Tx) error { _, err := tx.Machine(bourse.MachineID(bad)); return err })
			}(),
		} {
			if err, _ := got.(error); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("%s %q: got %v, want not_found", name, bad, err)
			}
		}
	}
	if err := s.View(func(tx *Tx) error { _, err := tx.Machine("x"); return err }); err == nil || err.Error() != "machine not found" {
		t.Errorf("unknown machine: %v", err)
	}
}

func TestMachineEventsAreNotStored(t *testing.T) {
	s := open(t)
	m := machine(1, bourse.StateCreated)
	m.LastEvents = []bourse.Event{{ID: "x"}}
	update(t, s, func(tx *Tx) error { return tx.PutMachine(m) })
	view(t, s, func(tx *Tx) error {
		got, err := tx.Machine(m.ID)
		if err != nil || got.LastEvents != nil {
			t.Errorf("events %v (%v), want none", got.LastEvents, err)
		}
		return nil
	})
	if len(m.LastEvents) != 1 {
		t.Error("the caller's record was changed")
	}
}

func TestLog(t *testing.T) {
	s := open(t)
	kinds := []string{"machine", "machine2", "worker"} // one of the names is a prefix of another
	var all []Entry
	for i := range 30 {
		update(t, s, func(tx *Tx) error {
			e, err := tx.Append(Entry{Kind: kinds[i%3], ID: fmt.Sprint(i % 2), Event: bourse.Event{Type: "t", At: time.Unix(int64(i), 0).UTC(), Pull: &bourse.PullEvent{Bytes: int64(i)}}})
			all = append(all, e)
			return err
		})
	}
	view(t, s, func(tx *Tx) error {
		if diff := cmp.Diff(all, list(t, entries.all(tx))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, kind := range kinds {
			var want []Entry
			for i := len(all) - 1; i >= 0 && len(want) < 3; i-- {
				if all[i].Kind == kind && all[i].ID == "1" {
					want = append(want, all[i])
				}
			}
			got, err := tx.Entries(kind, "1", 3)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("entries of %s: %v (-want +got):\n%s", kind, err, diff)
			}
		}
		if got, err := tx.Entries("none", "1", 0); err != nil || len(got) != 0 {
			t.Errorf("entries of an unknown kind: %v %v", got, err)
		}
		return tx.Verify()
	})
}

func TestRuns(t *testing.T) {
	s := open(t)
	at := time.Unix(1e9, 0).UTC()
	rec := fsm.Record{
		ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Definition: "d", Resource: "r", Status: fsm.Running, Step: "s", Attempt: 2, NotBefore: at, Cancel: "c",
		Request: json.RawMessage(`{"a":1}`), Result: json.RawMessage(`[1]`), CreatedAt: at, UpdatedAt: at,
	}
	other := rec
	other.ID, other.Resource, other.Request, other.Result = "01ARZ3NDEKTSV4RRFFQ69G5FAW", "r\x01", nil, nil
	for _, r := range []fsm.Record{rec, other} {
		update(t, s, func(tx *Tx) error { return tx.PutRun(r) })
	}
	open, err := s.Journal().Unfinished()
	if diff := cmp.Diff([]fsm.Record{rec, other}, open); err != nil || diff != "" {
		t.Errorf("unfinished: %v (-want +got):\n%s", err, diff)
	}
	rec.Status = fsm.Failed
	update(t, s, func(tx *Tx) error { return tx.PutRun(rec) })
	if open, err = s.Journal().Unfinished(); err != nil || len(open) != 1 {
		t.Errorf("unfinished: %v %v, want one", open, err)
	}
	if got, ok, err := s.Journal().Run(rec.ID); err != nil || !ok || got.Status != fsm.Failed {
		t.Errorf("run: %v %t %v", got, ok, err)
	}
	update(t, s, func(tx *Tx) error { return tx.DeleteRun(rec) })
	if _, ok, err := s.Journal().Run(rec.ID); err != nil || ok {
		t.Errorf("deleted run: %t %v", ok, err)
	}
	view(t, s, (*Tx).Verify)
}

func TestPruneKeepsTheLiving(t *testing.T) {
	s := open(t)
	now := time.Unix(1e9, 0)
	old, recent := now.Add(-2*DefaultKeep), now.Add(-DefaultKeep/2)
	states := []bourse.State{bourse.StateCreated, bourse.StateDestroying, bourse.StateDestroyed}
	for n, x := range []struct {
		at   time.Time
		last bourse.State
	}{{old, bourse.StateDestroyed}, {recent, bourse.StateDestroyed}, {old, bourse.StateCreated}} {
		for _, state := range states {
			update(t, s, func(tx *Tx) error {
				m := machine(n, state)
				m.UpdatedAt = x.at
				if _, err := tx.Append(Entry{Kind: KindMachine, ID: string(m.ID), Event: bourse.Event{Type: "t", At: x.at}}); err != nil {
					return err
				}
				id := bourse.OrderID(fmt.Sprintf("7ZZZZZZZZZZZZZZZZZZZZZZZZ%d", n)) // an id from the far future
				if err := tx.PutOrder(OrderRecord{ID: id, Machine: m.ID, At: x.at}); err != nil {
					return err
				}
				return tx.PutMachine(m)
			})
			if state == x.last {
				break
			}
		}
	}
	for i := range 300 {
		id := fmt.Sprintf("%026d", i) // ULIDs with timestamps of 1970
		update(t, s, func(tx *Tx) error {
			if err := tx.PutOrder(OrderRecord{ID: bourse.OrderID("tomb" + id), At: old}); err != nil {
				return err
			}
			status := fsm.Succeeded
			if i == 7 {
				status = fsm.Running
			}
			return tx.PutRun(fsm.Record{ID: id, Definition: "d", Resource: "r", Status: status, UpdatedAt: old})
		})
	}
	got, err := s.Prune(t.Context(), now)
	if want := (Pruned{Machines: 1, Orders: 301, Runs: 299}); err != nil || got != want {
		t.Errorf("pruned %+v (%v), want %+v", got, err, want)
	}
	view(t, s, func(tx *Tx) error {
		for n, want := range []int{0, 3, 1} {
			if log, err := tx.Entries(KindMachine, string(machineID(n)), 0); err != nil || len(log) != want {
				t.Errorf("machine %d has %d log entries (%v), want %d", n, len(log), err, want)
			}
		}
		if err := tx.Verify(); err != nil {
			return err
		}
		_, ok, err := tx.Order("7ZZZZZZZZZZZZZZZZZZZZZZZZ2")
		if !ok {
			t.Error("the order of a machine that still exists was pruned")
		}
		return err
	})
}

// TestPruneLimitsDestroyedMachines checks that if there are too many destroyed machines, Prune deletes the oldest
// ones, even if they were destroyed recently.
func TestPruneLimitsDestroyedMachines(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), logFileSize: smallLog, maxDestroyed: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Unix(1e9, 0)
	for n := range 300 {
		update(t, s, func(tx *Tx) error {
			if err := tx.PutMachine(machine(n, bourse.StateCreated)); err != nil || n == 7 {
				return err
			}
			if err := tx.PutMachine(machine(n, bourse.StateDestroying)); err != nil {
				return err
			}
			m := machine(n, bourse.StateDestroyed)
			m.UpdatedAt = now.Add(-time.Duration(300-n) * time.Second)
			return tx.PutMachine(m)
		})
	}
	if n, err := s.Prune(t.Context(), now); err != nil || n.Machines != 296 {
		t.Errorf("pruned %+v, %v, want 296 of 299 destroyed machines", n, err)
	}
	view(t, s, func(tx *Tx) error {
		for _, n := range []int{7, 297, 298, 299} {
			if _, err := tx.Machine(machine(n, bourse.StateStopped).ID); err != nil {
				t.Errorf("machine %d was deleted: %v", n, err)
			}
		}
		return nil
	})
}

// TestDestroyedMachinesAreLimitedInBytes destroys machines with large configs without ever calling Prune. Destroying a
// machine must delete older ones, because the whole store is in memory.
func TestDestroyedMachinesAreLimitedInBytes(t *testing.T) {
	s := openIn(t, t.TempDir())
	const each = 1 << 20
	large := strings.Repeat("x", each)
	for n := range MaxDestroyedBytes/each + 20 {
		update(t, s, func(tx *Tx) error {
			for _, state := range []bourse.State{bourse.StateCreated, bourse.StateDestroying, bourse.StateDestroyed} {
				m := machine(n, state)
				m.Config.Metadata = map[string]string{"large": large}
				m.UpdatedAt = time.Unix(int64(1e9+n), 0)
				if err := tx.PutMachine(m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	view(t, s, func(tx *Tx) error {
		kept := len(list(t, tx.Machines()))
		if size := tx.destroyedBytes(); size > MaxDestroyedBytes || size < MaxDestroyedBytes-2*each || kept != int(size/each) {
			t.Errorf("%d destroyed machines of %d bytes are retained", kept, size)
		}
		if _, err := tx.Machine(machineID(MaxDestroyedBytes/each + 19)); err != nil {
			t.Errorf("the machine that was destroyed last: %v", err)
		}
		return tx.Verify()
	})
}

// TestPruneLimitsEndedRuns checks that the number of ended runs is limited, even if they ended
// recently. Runs that have not ended are retained.
func TestPruneLimitsEndedRuns(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), logFileSize: smallLog, maxRuns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Unix(1e9, 0)
	id := func(n int) string { return fmt.Sprintf("%026d", n) }
	for n := range 300 {
		r := fsm.Record{ID: id(n), Definition: "d", Resource: "r", Status: fsm.Succeeded, UpdatedAt: now.Add(-2 * time.Minute)}
		if n == 7 {
			r.Status = fsm.Running
		}
		update(t, s, func(tx *Tx) error { return tx.PutRun(r) })
	}
	if n, err := s.Prune(t.Context(), now); err != nil || n.Runs != 296 {
		t.Errorf("pruned %+v, %v, want 296 of 299 ended runs", n, err)
	}
	view(t, s, func(tx *Tx) error {
		for _, n := range []int{7, 297, 298, 299} {
			if _, ok, err := tx.Run(id(n)); !ok {
				t.Errorf("run %d was deleted (%v)", n, err)
			}
		}
		return tx.Verify()
	})
}

func list[T any](t *testing.T, all iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for v, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
