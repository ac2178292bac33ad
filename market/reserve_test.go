package market_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// batch returns the orders of a reservation, one for each size in MiB.
func batch(key bourse.ReservationKey, named bool, sizes ...bourse.MiB) []bourse.Order {
	orders := make([]bourse.Order, len(sizes))
	for i, size := range sizes {
		o := order("gru")
		o.ID, o.HasChosenID = key.Order(i), named
		o.Config.Guest = &bourse.Guest{CPUKind: bourse.CPUShared, CPUs: 1, MemoryMB: size}
		o.Hold = &bourse.HoldOrder{Reservation: key, Index: i, TTL: bourse.Duration(time.Minute)}
		orders[i] = o
	}
	return orders
}

func memoryOf(c *Cluster, ids ...bourse.WorkerID) (sum int64) {
	for _, id := range ids {
		sum += c.Used(id, bourse.ResourceMemory)
	}
	return sum
}

func TestReserveHoldsAll(t *testing.T) {
	c := floor(3, room(2))
	x := broker(c, nil)
	key := bourse.NewReservationKey()
	holds, _, err := x.Reserve(t.Context(), batch(key, false, 256, 256, 256, 256, 256, 256))
	if err != nil || len(holds) != 6 {
		t.Fatalf("%d holds, %v", len(holds), err)
	}
	for i, h := range holds {
		if h.Order != key.Order(i) || h.Index != i || h.Worker == "" {
			t.Errorf("hold %d: %+v", i, h)
		}
		if d, ok := x.Decision(h.Order); !ok || d.Outcome != bourse.OutcomeFilled || d.Worker != h.Worker {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	if got := memoryOf(c, "w0", "w1", "w2"); got != 6*256 {
		t.Errorf("%d MiB held, want %d", got, 6*256)
	}
}

// TestReserveIsAllOrNothing checks that, if one worker lacks capacity, no holds remain.
func TestReserveIsAllOrNothing(t *testing.T) {
	c := floor(2, room(2))
	x := broker(c, nil)
	_, decision, err := x.Reserve(t.Context(), batch(bourse.NewReservationKey(), false, 256, 256, 256, 256, 256))
	fails(t, err, bourse.CodeInsufficient)
	if len(decision.Refusals()) == 0 || decision.Refusals()[0].Resource == "" {
		t.Errorf("the decision contains no refusal with a resource: %+v", decision)
	}
	if got := memoryOf(c, "w0", "w1"); got != 0 {
		t.Errorf("%d MiB are still held", got)
	}
	if _, _, err := x.Reserve(t.Context(), batch(bourse.NewReservationKey(), false, 256, 256, 256, 256)); err != nil {
		t.Errorf("a reservation that fits, after the failed one: %v", err)
	}
}

// TestReserveBeginsWithTheLargest checks that a small order does not take the only place in which a
// large one fits.
func TestReserveBeginsWithTheLargest(t *testing.T) {
	c := newCluster(
		Spec{ID: "large", Region: "gru", Total: room(4)},
		Spec{ID: "small", Region: "gru", Total: room(1)},
	)
	for range 20 {
		if _, _, err := broker(c, nil).Reserve(t.Context(), batch(bourse.NewReservationKey(), false, 256, 1024)); err != nil {
			t.Fatal(err)
		}
		c.Clear()
	}
}

// TestReserveOnce checks that a repeated reservation finds the same holds and creates no others,
// whether it is repeated at the same time or later, through the same broker or another one.
func TestReserveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(4, room(4))
		key := bourse.NewReservationKey()
		x, y := broker(c, nil), broker(c, nil)
		var wg sync.WaitGroup
		got := make([][]bourse.Hold, 6)
		for i := range got {
			wg.Go(func() {
				via := x
				if i >= 4 { // the last attempts are made later
					time.Sleep(time.Minute)
					via = y
				}
				holds, _, err := via.Reserve(t.Context(), batch(key, true, 256, 256, 256))
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				got[i] = holds
			})
		}
		wg.Wait()
		for i, holds := range got {
			for n := range holds {
				if holds[n].Worker != got[0][n].Worker || !holds[n].CreatedAt.Equal(got[0][n].CreatedAt) {
					t.Errorf("call %d: order %d is held by %s, but the first reply was %s", i, n, holds[n].Worker, got[0][n].Worker)
				}
			}
		}
		if sum := memoryOf(c, "w0", "w1", "w2", "w3"); sum != 3*256 {
			t.Errorf("%d MiB are held, want %d", sum, 3*256)
		}
	})
}

// TestReserveWhenTheCallerLeaves checks what happens to the holds if the caller disconnects. They
// are released if the caller does not know the reservation's key. If the caller has chosen the key,
// a repeated reservation finds the holds.
func TestReserveWhenTheCallerLeaves(t *testing.T) {
	for named, want := range map[bool]int64{false: 0, true: 3 * 256} {
		synctest.Test(t, func(t *testing.T) {
			c := floor(3, room(4))
			c.Break(func(call Call) Fault {
				if call.Verb == Claim {
					return Fault{ReplyDelay: 100 * time.Millisecond}
				}
				return Fault{}
			})
			x := broker(c, nil)
			defer running(t.Context(), x)()
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(150*time.Millisecond, leave)
			orders := batch(bourse.NewReservationKey(), named, 256, 256, 256)
			_, _, err := x.Reserve(ctx, orders)
			if !named {
				fails(t, err, bourse.CodeCanceled)
			}
			c.Quiet()
			if sum := memoryOf(c, "w0", "w1", "w2"); sum != want {
				t.Errorf("named %t: %d MiB are held, want %d", named, sum, want)
			}
			if named {
				if holds, _, err := x.Reserve(t.Context(), orders); err != nil || len(holds) != 3 || memoryOf(c, "w0", "w1", "w2") != want {
					t.Errorf("when the caller repeats the request: %+v, %v", holds, err)
				}
			}
		})
	}
}

// TestReserveInABadNetwork reserves capacity over a network with arbitrary faults. A caller that
// succeeds must have all holds. If a caller fails, no holds may remain once the lost messages have
// been delivered. Every caller must be answered in time.
func TestReserveInABadNetwork(t *testing.T) {
	yes, no := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 8).Draw(t, "orders")
			workers := []bourse.WorkerID{"w0", "w1", "w2", "w3"}[:rapid.IntRange(1, 4).Draw(t, "workers")]
			c := floor(len(workers), room(rapid.Int64Range(1, 4).Draw(t, "room")))
			x := broker(c, func(cfg *market.Config) { cfg.Cancellations = c.NewCancellations() })
			stop := running(t.Context(), x)
			c.Break(badNetwork(t))
			began := time.Now()
			holds, _, err := x.Reserve(t.Context(), batch(bourse.NewReservationKey(), rapid.Bool().Draw(t, "named"), slices.Repeat([]bourse.MiB{256}, n)...))
			if took := time.Since(began); took > bourse.DefaultOrderTimeout {
				t.Fatalf("replied after %s", took)
			}
			repair(c)
			stop()
			c.Quiet()
			want := int64(0)
			if err == nil {
				want = int64(n) * 256
				yes++
			} else {
				no++
			}
			if sum := memoryOf(c, workers...); sum != want || err == nil && len(holds) != n {
				t.Fatalf("got %v and %d holds: %d MiB are held, want %d", err, len(holds), sum, want)
			}
		})
	})
	if yes == 0 || no == 0 {
		t.Errorf("%d reservations succeeded and %d failed, want some of each", yes, no)
	}
	t.Logf("%d reservations succeeded, %d failed", yes, no)
}

// TestAReleaseThatWasNotDelivered checks that a worker that did not receive the release of a hold
// finds it in the view, even if the broker has exited. Until then, a repeated reservation does not
// count that hold.
func TestAReleaseThatWasNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		stored := c.NewCancellations()
		c.Break(func(call Call) Fault {
			return Fault{Unreachable: call.Verb == Cancel}
		})
		withCancellations := func(cfg *market.Config) { cfg.Cancellations = stored }
		key := bourse.NewReservationKey()
		_, _, err := broker(c, withCancellations).Reserve(t.Context(), batch(key, true, 256, 256, 256))
		fails(t, err, bourse.CodeInsufficient)
		if got := memoryOf(c, "w0", "w1"); got != 2*256 {
			t.Fatalf("%d MiB are held, want those of the two workers that the cancellation did not reach", got)
		}
		c.Break(nil)
		_, decision, err := broker(c, withCancellations).Reserve(t.Context(), batch(key, true, 256))
		fails(t, err, bourse.CodeInsufficient)
		if !slices.ContainsFunc(decision.Refusals(), func(r bourse.Refusal) bool { return r.Reason == bourse.RefusedCanceled }) {
			t.Errorf("refusals %+v: want canceled by the worker that holds it", decision.Refusals())
		}
		stored.Apply()
		if got := memoryOf(c, "w0", "w1"); got != 0 {
			t.Errorf("%d MiB are still held", got)
		}
	})
}

// TestPlaceFromAReservation checks that an order that names a reservation goes only to workers that
// have holds for it.
func TestPlaceFromAReservation(t *testing.T) {
	c := floor(40, room(2)) // so many workers that normally a sample would be asked
	x := broker(c, nil)
	key := bourse.NewReservationKey()
	holds, _, err := x.Reserve(t.Context(), batch(key, false, 512))
	if err != nil {
		t.Fatal(err)
	}
	o := order("gru")
	o.Reservation = key.At([]bourse.WorkerTag{holds[0].Tag, 0xffffff})
	a := place(t.Context(), x, o)
	if a.err == nil { // the fake workers do not let machines use holds, so the claimed worker is full
		t.Fatalf("filled by %s", a.fill.Machine.Worker)
	}
	if asked := a.decision.Rounds[0]; asked.Candidates != 1 || asked.Claims[0].Worker != holds[0].Worker {
		t.Errorf("asked %+v, want %s alone", asked, holds[0].Worker)
	}
	fails(t, a.err, bourse.CodeInsufficient)

	o = order("gru")
	o.Reservation = key.At([]bourse.WorkerTag{0xffffff})
	a = place(t.Context(), x, o)
	fails(t, a.err, bourse.CodeInsufficient)
	if !strings.Contains(a.err.Error(), string(o.Reservation)) {
		t.Errorf("an unknown worker: %v, want an error that names the reservation", a.err)
	}
	o = order("gru")
	o.Reservation = bourse.NewReservationKey().At([]bourse.WorkerTag{1, 2, 3})
	o.HasChosenID = true
	a = place(t.Context(), x, o)
	fails(t, a.err, bourse.CodeFailedPrecondition)
	if !strings.Contains(a.err.Error(), "no longer exists") || len(a.decision.Refusals()) != 3 {
		t.Errorf("a reservation that is gone: %v, refusals %+v", a.err, a.decision.Refusals())
	}
}

// TestReservationsNarrowEachChoice checks that only the reservation's workers are asked, each of
// them as part of its own choice. The reservation has workers in both choices, in one of them, or
// in none.
func TestReservationsNarrowEachChoice(t *testing.T) {
	c := newCluster(
		Spec{ID: "a", Region: "gru", Total: room(2)}, // its tag is 1, that of the next worker 2, and so on
		Spec{ID: "b", Region: "gru", Total: room(2)},
		Spec{ID: "c", Region: "mad", Total: room(2)},
		Spec{ID: "d", Region: "nrt", Total: room(2)},
	)
	for tags, want := range map[[2]bourse.WorkerTag]string{
		{1, 3}: "gru 1, nrt 0, mad 1", {2, 4}: "gru 1, nrt 1, mad 0", {1, 2}: "gru 2, nrt 0, mad 0", {9, 8}: "gru 0, nrt 0, mad 0",
	} {
		for _, named := range []bool{false, true} {
			o := order("gru", "nrt", "mad")
			o.HasChosenID = named
			o.Reservation = bourse.NewReservationKey().At(tags[:])
			a := place(t.Context(), broker(c, nil), o)
			var got []string
			for _, r := range a.decision.Rounds {
				got = append(got, fmt.Sprintf("%s %d", r.Regions[0], r.Candidates))
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("tags %v: %v, want %s", tags, got, want)
			}
		}
	}
}

// TestReserveDoesNotBelieveNonsense checks that an answer is rejected if it contains a machine, or
// a hold for another order. The worker must undo what it has recorded.
func TestReserveDoesNotBelieveNonsense(t *testing.T) {
	for name, lie := range map[string]func(*bourse.Fill){
		"a machine": func(f *bourse.Fill) {
			f.Machine = bourse.Machine{ID: "00000100000000", Order: f.Hold.Order, Worker: f.Hold.Worker, Region: f.Hold.Region}
			f.Hold = nil
		},
		"another order":        func(f *bourse.Fill) { f.Hold.Order = bourse.NewOrderID() },
		"another region":       func(f *bourse.Fill) { f.Hold.Region = "mad" },
		"another worker's tag": func(f *bourse.Fill) { f.Hold.Tag = 0xbbbbbb },
		"another index":        func(f *bourse.Fill) { f.Hold.Index = -1 },
		"another key":          func(f *bourse.Fill) { f.Hold.Reservation = bourse.NewReservationKey() },
	} {
		c := floor(1, room(2))
		c.Tell("w0", &Lies{Claim: func(f *bourse.Fill, r *bourse.Refusal, err error) (*bourse.Fill, *bourse.Refusal, error) {
			lie(f)
			return f, r, err
		}})
		_, _, err := broker(c, nil).Reserve(t.Context(), batch(bourse.NewReservationKey(), false, 256))
		if err == nil {
			t.Errorf("%s: the false hold was accepted", name)
		}
		if got := memoryOf(c, "w0"); got != 0 {
			t.Errorf("%s: %d MiB are still held", name, got)
		}
	}
}
