package publish

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// rows is a view that stores only the ids of machines, and that tests can make fail.
type rows struct {
	View     // the methods that this test does not use
	machines map[bourse.MachineID]bool
	lost     chan struct{}
	fault    func() error
}

func (r *rows) Publish(_ context.Context, u Update) error {
	if err := r.fault(); err != nil {
		return err
	}
	for _, m := range u.Machines {
		r.machines[m.ID] = true
	}
	for _, id := range u.Gone {
		delete(r.machines, id)
	}
	return r.fault() // an update may take effect and still return an error
}

func (r *rows) Machines(context.Context) ([]bourse.MachineID, error) {
	return slices.Collect(maps.Keys(r.machines)), r.fault()
}
func (*rows) Volumes(context.Context) ([]bourse.VolumeID, error) { return nil, nil }
func (*rows) Images(context.Context) ([]string, error)           { return nil, nil }
func (r *rows) Lost() <-chan struct{}                            { return r.lost }

func newPublisher(t testing.TB) (*Publisher, *rows) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	v := &rows{machines: map[bourse.MachineID]bool{}, lost: make(chan struct{}), fault: func() error { return nil }}
	facts := func(*store.Tx) (bourse.Facts, error) { return bourse.Facts{Worker: "w1"}, nil }
	return New(state.New(store.Identity{Worker: "w1", Tag: 1, Region: "gru"}, s, slog.New(slog.DiscardHandler)), Config{View: v, Facts: facts}), v
}

// put records a machine in several states, one after the other, and reports each change
// as the worker's parts do.
func put(t testing.TB, s *state.State, id bourse.MachineID, states ...bourse.State) {
	t.Helper()
	for _, now := range states {
		err := s.Commit(t.Context(), id, func(tx *store.Tx) error {
			m := bourse.Machine{ID: id, Name: string(id), App: "app", AppID: "app", State: now, CreatedAt: time.Now(), UpdatedAt: time.Now()}
			return tx.PutMachine(&m)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// However the view fails, in the end it contains exactly the machines that are not
// destroyed, and so does the publisher's list of published machines.
func TestTheViewHasTheLiveMachines(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			p, v := newPublisher(t)
			lives := map[bourse.MachineID]bool{}
			v.fault = func() error {
				if rng.IntN(2) == 0 {
					return bourse.Errorf(bourse.CodeUnavailable, "the view fails")
				}
				return nil
			}
			for range 200 {
				id := bourse.NewMachineID(1)
				put(t, p.state, id, bourse.StateCreated)
				lives[id] = true
				if rng.IntN(3) == 0 {
					p.publishChanges(t.Context())
				}
				for id := range lives {
					if rng.IntN(8) == 0 {
						put(t, p.state, id, bourse.StateDestroying, bourse.StateDestroyed)
						delete(lives, id)
					}
				}
				if rng.IntN(50) == 0 {
					p.box.addAll()
				}
			}
			v.fault = func() error { return nil }
			p.publishChanges(t.Context())
			if !maps.Equal(v.machines, lives) {
				t.Errorf("seed %d: the view has %d machines, want %d", seed, len(v.machines), len(lives))
			}
			if len(p.published) != len(lives) {
				t.Errorf("seed %d: the publisher remembers %d machines, want %d", seed, len(p.published), len(lives))
			}
		})
	}
}

func TestPublishBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{
		1: minRetryDelay, 2: 2 * minRetryDelay, 3: 4 * minRetryDelay, 50: MaxRetryDelay, 1 << 30: MaxRetryDelay,
	} {
		if got := backoff(n); got != want {
			t.Errorf("after %d failures: %s, want %s", n, got, want)
		}
	}
}

// BenchmarkPublish measures the work for each changed machine: noting the change, and reading the machine with its
// events for the view. No request waits for this work.
func BenchmarkPublish(b *testing.B) {
	p, _ := newPublisher(b)
	ids := make([]bourse.MachineID, Batch)
	for i := range ids {
		ids[i] = bourse.NewMachineID(1)
		put(b, p.state, ids[i], bourse.StateCreated)
	}
	p.box.take()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ { // each iteration publishes a machine
		p.box.add(ids[i%Batch], false)
		if (i+1)%Batch > 0 {
			continue
		}
		out := p.box.take()
		if err := p.send(b.Context(), &out); err != nil {
			b.Fatal(err)
		}
	}
}
