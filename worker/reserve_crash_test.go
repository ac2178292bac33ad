package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// holdDiary records what the scenario's callers were told about their reservations.
type holdDiary struct {
	ends     map[bourse.OrderID]time.Time // expiry times of the holds that were confirmed
	keys     map[bourse.OrderID]bourse.ReservationKey
	left     map[bourse.OrderID]int64 // memory that remains in each hold
	released map[bourse.ReservationKey]bool
	machines map[bourse.MachineID]bool
}

func newHoldDiary() *holdDiary {
	return &holdDiary{
		ends: map[bourse.OrderID]time.Time{}, keys: map[bourse.OrderID]bourse.ReservationKey{}, left: map[bourse.OrderID]int64{},
		released: map[bourse.ReservationKey]bool{}, machines: map[bourse.MachineID]bool{},
	}
}

func (d *holdDiary) note(holds ...bourse.Hold) {
	for _, h := range holds {
		d.ends[h.Order], d.keys[h.Order], d.left[h.Order] = h.ExpiresAt, h.Reservation, h.Remaining.Of("memory")
	}
}

// unsure discards what is known about a reservation, because an operation whose caller
// gets no answer may have changed it.
func (d *holdDiary) unsure(key bourse.ReservationKey) {
	for order := range d.ends {
		if d.keys[order] == key {
			delete(d.ends, order)
		}
	}
}

// reserved runs a scenario with reservations. It stops at the first error.
func (h *host) reserved(d *holdDiary) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	defer cancel()
	long, short := bourse.ReservationKey("01J00000000000000000000001"), bourse.ReservationKey("01J00000000000000000000002")
	claim := func(order *bourse.Order) (*bourse.Fill, error) {
		fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err == nil && refusal != nil {
			err = errors.New(refusal.Detail)
		}
		return fill, err
	}
	reserve := func(key bourse.ReservationKey, n int, ttl time.Duration) error {
		fill, err := claim(newHoldOrder(h.t, key, n, ttl))
		if err == nil {
			d.note(*fill.Hold)
		}
		return err
	}
	for _, step := range []func() error{
		func() error { return reserve(long, 0, time.Minute) },
		func() error { return reserve(long, 1, time.Minute) },
		func() error { return reserve(short, 0, 5*time.Second) },
		func() error {
			d.unsure(long)
			holds, err := h.holds.Extend(ctx, long, 2*time.Minute)
			d.note(holds...)
			return err
		},
		func() error {
			d.unsure(long)
			fill, err := claim(newOrder(h.t, func(o *bourse.Order) { o.Reservation = long.At([]bourse.WorkerTag{1}) }, mem(100)))
			if err != nil {
				return err
			}
			d.machines[fill.Machine.ID] = true
			holds, err := h.holds.Of(ctx, long)
			d.note(holds...)
			return err
		},
		func() error { time.Sleep(6 * time.Second); return nil }, // the short reservation expires
		func() error {
			d.unsure(long)
			err := h.releaseHolds(ctx, long)
			d.released[long] = err == nil
			return err
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) checkReserved(d *holdDiary) {
	h.t.Helper()
	check := func(when string) {
		h.t.Helper()
		synctest.Wait()
		for order, end := range d.ends {
			holds, err := h.holds.Of(h.t.Context(), d.keys[order])
			var have *bourse.Hold
			for i := range holds {
				if holds[i].Order == order {
					have = &holds[i]
				}
			}
			live := time.Now().Before(end)
			if live != (have != nil) || err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
				h.t.Errorf("%s: hold %s was reported to end at %s: %+v, %v", when, order, end, have, err)
			}
			if have != nil && (!have.ExpiresAt.Equal(end) || have.Remaining.Of("memory") != d.left[order]) {
				h.t.Errorf("%s: hold %s is %+v, was reported to end at %s with %d remaining", when, order, have, end, d.left[order])
			}
		}
		for key, reported := range d.released {
			if _, err := h.holds.Of(h.t.Context(), key); reported && bourse.CodeOf(err) != bourse.CodeNotFound {
				h.t.Errorf("%s: holds of a released reservation: %v", when, err)
			}
			if reported {
				h.refuses(when+": a claim after the reservation's release", newHoldOrder(h.t, key, 2, time.Minute), bourse.RefusedCanceled)
			}
		}
		h.verify()
	}
	check("after the restart")
	time.Sleep(10 * time.Minute)
	check("later")
	for id := range d.machines {
		if m := h.get(id); m.State != bourse.StateStarted {
			h.t.Errorf("machine %s was reported as started and is %s", id, m.State)
		}
	}
	// No expired hold is left.
	if err := h.store.View(func(tx *store.Tx) error {
		if end, ok := tx.NextExpiry(); ok {
			h.t.Errorf("a hold that expired at %s is still recorded", end)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
}

// The daemon dies before and after each commit while it reserves, extends, claims held
// capacity, lets holds expire, and releases. After a restart, everything that callers
// were told is still true, and in the end no hold is left.
func TestReservationsSurviveACrashAtEveryCommit(t *testing.T) {
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.crash()
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		if err := h.reserved(newHoldDiary()); err != nil {
			t.Fatalf("the scenario fails even without a crash: %v", err)
		}
		h.crash()
	})
	t.Logf("%d commits", commits)
	if commits < 8 {
		t.Fatalf("the scenario makes only %d commits", commits)
	}
	for n := uint64(1); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, nil)
					h.crash()
					d := newHoldDiary()
					if h.tryStart(crashAt(stage, n)) == nil {
						_ = h.reserved(d) // the crash ends the scenario early
						h.crash()
					}
					h.start(nil)
					h.checkReserved(d)
					h.crash()
				})
			})
		}
	}
}

// Invariant 4: many clients claim machines, reserve, claim from reservations, extend
// and release them, and let them expire. No resource is ever oversold, and at the end
// the ledger matches the machines and the holds that have not expired.
func TestInvariant4WithReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		var pool keys
		var wg sync.WaitGroup
		for seed := range uint64(8) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 1))
				for range 120 {
					if err := h.stormOnce(rng, &pool); err != nil {
						t.Errorf("client %d: %v", seed, err)
					}
					if err := h.undersold(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		h.verify()
		check := func(when string) {
			var sum int64
			if err := h.store.View(func(tx *store.Tx) error {
				for m, err := range tx.Machines() {
					if err != nil {
						return err
					}
					sum += m.Takes.Of("memory")
				}
				for hold, err := range tx.Holds() {
					if err != nil {
						return err
					}
					if hold.ExpiresAt.After(time.Now()) {
						sum += hold.Remaining.Of("memory")
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got := h.used(); got != sum {
				t.Errorf("%s: %d are used, machines and holds take %d", when, got, sum)
			}
		}
		check("at the end")
		time.Sleep(10 * time.Second)
		check("when all holds have expired")
		h.verify()
		t.Logf("%d keys", pool.n)
	})
}

// keys contains the reservations that the clients use, a few at a time.
type keys struct {
	mu  sync.Mutex
	now [4]bourse.ReservationKey
	n   int
}

func (k *keys) pick(rng *rand.Rand, fresh bool) bourse.ReservationKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := rng.IntN(len(k.now))
	if fresh || k.now[i] == "" {
		k.now[i] = bourse.NewReservationKey()
		k.n++
	}
	return k.now[i]
}

// stormOnce executes a random operation. A refusal is not an error.
func (h *host) stormOnce(rng *rand.Rand, pool *keys) (err error) {
	ctx := h.t.Context()
	key := pool.pick(rng, rng.IntN(8) == 0)
	claim := func(order *bourse.Order) (*bourse.Fill, error) {
		fill, _, err := h.claim(ctx, &bourse.Claim{Order: *order})
		return fill, err
	}
	size := mem(bourse.MiB(1 + rng.Int64N(1500)))
	switch rng.IntN(8) {
	case 0, 1:
		_, err = claim(newHoldOrder(h.t, key, rng.IntN(4), time.Duration(1+rng.IntN(4))*time.Second, size))
	case 2:
		_, err = claim(newOrder(h.t, size))
	case 3, 4:
		_, err = claim(newOrder(h.t, size, func(o *bourse.Order) { o.Reservation = key.At([]bourse.WorkerTag{1}) }))
	case 5:
		if _, err = h.holds.Extend(ctx, key, time.Duration(1+rng.IntN(4))*time.Second); bourse.CodeOf(err) == bourse.CodeNotFound {
			err = nil
		}
	case 6:
		if rng.IntN(2) == 0 {
			_, err = h.cancel(ctx, key.Order(rng.IntN(4)))
		} else {
			err = h.releaseHolds(ctx, key)
		}
	case 7:
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		err = h.destroyOne(rng)
	}
	return err
}

// destroyOne destroys a random machine, to make room again.
func (h *host) destroyOne(rng *rand.Rand) error {
	all, err := h.machines.List(h.t.Context(), nil, func(m *bourse.Machine) bool { return m.State == bourse.StateStarted })
	if err != nil || len(all) == 0 {
		return err
	}
	_, err = h.machines.Destroy(h.t.Context(), all[rng.IntN(len(all))].ID, fabric.MachineAction{Force: true})
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeFailedPrecondition: // another client was faster
		return nil
	default:
		return err
	}
}

// undersold returns an error if a resource is oversold.
func (h *host) undersold() error {
	return h.store.View(func(tx *store.Tx) error {
		committed, err := tx.Committed()
		for _, a := range h.host.Ledger.Accounts(committed) {
			if a.Used > a.Total {
				err = errors.Join(err, fmt.Errorf("oversold: %s used %d of %d", a.Resource, a.Used, a.Total))
			}
		}
		return err
	})
}
