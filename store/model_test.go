package store

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// model models a store of machines as maps.
type model struct {
	machines map[bourse.MachineID]bourse.Machine
	log      map[bourse.MachineID][]string
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.machines), maps.Clone(m.log)}
}

// put applies PutMachine to the model, and returns the expected error code.
func (m *model) put(x bourse.Machine) bourse.Code {
	old := m.machines[x.ID]
	if old.State != x.State && !old.State.CanBecome(x.State) {
		return bourse.CodeInternal
	}
	if x.State != bourse.StateDestroyed {
		for _, y := range m.machines {
			if y.ID != x.ID && y.State != bourse.StateDestroyed && (y.App == x.App && y.AppID == x.AppID && y.Name == x.Name || x.Boot.Port != 0 && y.Boot.Port == x.Boot.Port) {
				return bourse.CodeAlreadyExists
			}
		}
	}
	m.machines[x.ID] = x
	return ""
}

func (m *model) delete(id bourse.MachineID) bourse.Code {
	switch x, ok := m.machines[id]; {
	case !ok:
		return bourse.CodeNotFound
	case x.State != bourse.StateDestroyed:
		return bourse.CodeFailedPrecondition
	}
	delete(m.machines, id)
	delete(m.log, id)
	return ""
}

func (m *model) committed() bourse.Amounts {
	sums := map[bourse.Resource]int64{}
	for _, x := range m.machines {
		for _, a := range x.Takes {
			sums[a.Resource] += a.Amount
		}
	}
	var out bourse.Amounts
	for r, n := range sums {
		if n != 0 {
			out = append(out, bourse.Amount{Resource: r, Amount: n})
		}
	}
	return out.Sorted()
}

func drawMachine(t *rapid.T) bourse.Machine {
	m := *machine(rapid.IntRange(0, 5).Draw(t, "id"), rapid.SampledFrom(bourse.States()).Draw(t, "state"))
	m.Order, m.Instance = "o", "i"
	m.Name = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	m.App = rapid.SampledFrom([]bourse.AppName{"app", "app-2"}).Draw(t, "app")
	m.AppID = rapid.SampledFrom(modelIDs(m.App)).Draw(t, "app's id")
	m.Boot.Port = rapid.SampledFrom([]int{0, 0, 80, 65535}).Draw(t, "port")
	m.UpdatedAt = time.Unix(rapid.Int64Range(-5, 5).Draw(t, "at"), 0).UTC()
	m.CreatedAt = m.CreatedAt.UTC()
	m.Takes = nil
	for _, r := range []bourse.Resource{"cpu", "gpu.a100", "memory"} {
		if n := rapid.Int64Range(-1, 3).Draw(t, "takes"); n >= 0 {
			m.Takes = append(m.Takes, bourse.Amount{Resource: r, Amount: n})
		}
	}
	return m
}

// modelIDs returns the IDs of the apps that have had a name, and "" for records without an app
// ID.
func modelIDs(name bourse.AppName) []string {
	return []string{"", "FIRST " + string(name), "SECOND " + string(name)}
}

// TestModel compares a store with the model after random transactions.
func TestModel(t *testing.T) {
	t.Parallel()
	s := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		reset(rt, s)
		m := &model{map[bourse.MachineID]bourse.Machine{}, map[bourse.MachineID][]string{}}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				next := m.clone()
				var problem error
				fails := rapid.IntRange(0, 4).Draw(rt, "fails") == 0
				list := rapid.SliceOfN(rapid.Custom(drawMachine), 1, 3).Draw(rt, "machines")
				err := s.Update(t.Context(), func(tx *Tx) error {
					next, problem = m.clone(), nil
					for _, x := range list {
						want, err := next.put(x), tx.PutMachine(&x)
						if bourse.CodeOf(err) != want {
							problem = fmt.Errorf("put %s %s: %w, want code %q", x.ID, x.State, err, want)
						}
						if err == nil {
							note := fmt.Sprint(len(next.log[x.ID]))
							next.log[x.ID] = append(slices.Clone(next.log[x.ID]), note)
							if _, err := tx.Append(Entry{Kind: KindMachine, ID: string(x.ID), Event: bourse.Event{Type: bourse.EventType(note)}}); err != nil {
								return err
							}
						} else { // the failed call may have written some of its changes
							return err
						}
					}
					if fails {
						return errors.New("undone")
					}
					return nil
				})
				if problem != nil {
					rt.Fatal(problem)
				}
				if err == nil {
					m = next
				}
			},
			"delete": func(rt *rapid.T) {
				id := machineID(rapid.IntRange(0, 5).Draw(rt, "id"))
				next := m.clone()
				want := next.delete(id)
				if err := s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteMachine(id) }); bourse.CodeOf(err) != want {
					rt.Fatalf("delete %s: %v, want code %q", id, err, want)
				}
				m = next
			},
			"": func(rt *rapid.T) {
				if err := s.View(m.compare); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

// reset removes all machines, regardless of their states.
func reset(t *rapid.T, s *Store) {
	empty(t, s, bucketMachines, bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineDestroyed, bucketMachineLiving,
		bucketCommitted, bucketLog, bucketLogOf, bucketMeta)
}

// empty removes all keys from some buckets.
func empty(t *rapid.T, s *Store, buckets ...string) {
	err := s.Update(t.Context(), func(tx *Tx) error {
		for _, b := range buckets {
			var keys [][]byte
			for k := range tx.kv.Range(b, nil) {
				keys = append(keys, k)
			}
			for _, k := range keys {
				if err := tx.kv.Delete(b, k); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compare returns an error if tx differs from the model.
func (m *model) compare(tx *Tx) error {
	got := map[bourse.MachineID]bourse.Machine{}
	for x, err := range tx.Machines() {
		if err != nil {
			return err
		}
		got[x.ID] = x
	}
	if diff := cmp.Diff(m.machines, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		return fmt.Errorf("machines (-want +got):\n%s", diff)
	}
	sum, err := tx.Committed()
	if diff := cmp.Diff(m.committed(), sum); err != nil || diff != "" {
		return fmt.Errorf("committed: %w (-want +got):\n%s", err, diff)
	}
	for _, name := range []bourse.AppName{"app", "app-2"} {
		for life, id := range modelIDs(name) {
			// This app was created after all records, so it does not own the records without an app ID.
			app := bourse.App{Name: name, ID: id, Generation: life, CreatedAt: time.Unix(1<<40, 0)}
			if err := m.compareApp(tx, app); err != nil {
				return err
			}
		}
	}
	for _, x := range m.machines {
		if id, ok := tx.PortUser(x.Boot.Port); x.Boot.Port != 0 && x.State != bourse.StateDestroyed && (!ok || id != x.ID) {
			return fmt.Errorf("port %d: %s %t, want %s", x.Boot.Port, id, ok, x.ID)
		}
		entries, err := tx.Entries(KindMachine, string(x.ID), 0)
		if err != nil {
			return err
		}
		var notes []string
		for _, e := range slices.Backward(entries) {
			notes = append(notes, string(e.Event.Type))
		}
		if diff := cmp.Diff(m.log[x.ID], notes); diff != "" {
			return fmt.Errorf("log of %s (-want +got):\n%s", x.ID, diff)
		}
	}
	return tx.Verify()
}

func (m *model) compareApp(tx *Tx, app bourse.App) error {
	var want, got []bourse.MachineID
	living := 0
	for id, x := range m.machines {
		if x.App == app.Name && x.AppID == "" && app.ID != "" && x.State != bourse.StateDestroyed {
			living++ // counted, because a machine without an app ID may belong to this app
		}
		if x.App != app.Name || x.AppID != app.ID {
			continue
		}
		want = append(want, id)
		if x.State == bourse.StateDestroyed {
			continue
		}
		living++
		if found, ok, err := tx.MachineNamed(app, x.Name); err != nil || !ok || found != id {
			return fmt.Errorf("machine named %s: %s %t %w, want %s", x.Name, found, ok, err, id)
		}
	}
	slices.Sort(want)
	for x, err := range tx.MachinesOf(app) {
		if err != nil {
			return err
		}
		got = append(got, x.ID)
	}
	if !slices.Equal(want, got) || tx.CountMachines(app) != living {
		return fmt.Errorf("machines of %v: %v, of which %d are not destroyed; want %v, %d", app.Ref(), got, tx.CountMachines(app), want, living)
	}
	return nil
}
