package worker

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
	"github.com/bourse-dev/bourse/store"
)

// newHoldOrder returns the n-th order of a reservation, for 64 MiB of memory.
func newHoldOrder(t testing.TB, key bourse.ReservationKey, n int, ttl time.Duration, change ...func(*bourse.Order)) *bourse.Order {
	t.Helper()
	return newOrder(t, append([]func(*bourse.Order){func(o *bourse.Order) {
		o.ID = key.Order(n)
		o.Hold = &bourse.HoldOrder{Reservation: key, Index: n, TTL: bourse.Duration(ttl)}
	}}, change...)...)
}

func (h *host) tryHold(order *bourse.Order) (*bourse.Fill, *bourse.Refusal) {
	h.t.Helper()
	fill, refusal, err := h.claim(h.t.Context(), &bourse.Claim{Order: *order})
	if err != nil {
		h.t.Fatalf("reserve: %v", err)
	}
	return fill, refusal
}

// hold claims an order that holds capacity, and fails the test unless the order is filled.
func (h *host) hold(order *bourse.Order) bourse.Hold {
	h.t.Helper()
	fill, refusal := h.tryHold(order)
	if refusal != nil {
		h.t.Fatalf("reserve: %+v", refusal)
	}
	return *fill.Hold
}

// refuses fails the test unless the order is refused for the reason.
func (h *host) refuses(what string, order *bourse.Order, reason bourse.RefusalReason) {
	h.t.Helper()
	_, refusal := h.tryHold(order)
	if refusal == nil || refusal.Reason != reason || refusal.Worker != "w1" || refusal.Region != "gru" || refusal.Detail == "" {
		h.t.Errorf("%s: %+v, want reason %s with a detail", what, refusal, reason)
	}
}

// used returns how much memory machines and holds take.
func (h *host) used() int64 {
	h.t.Helper()
	facts, err := h.Facts()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range facts.Accounts {
		if a.Resource == bourse.ResourceMemory {
			return a.Used
		}
	}
	return 0
}

func mem(n bourse.MiB) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Guest.MemoryMB = n }
}

func fromHold(h bourse.Hold) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Reservation = h.Reservation.At([]bourse.WorkerTag{h.Tag}) }
}

// A machine that names a reservation takes the reservation's capacity first, and the
// rest from the free capacity. Other machines can only use free capacity.
func TestMachinesTakeHeldCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		key := bourse.NewReservationKey()
		hold := h.hold(newHoldOrder(t, key, 0, time.Minute, mem(3000)))
		if hold.Worker != "w1" || hold.Region != "gru" || hold.Takes.Of("memory") != 3000 || hold.Remaining.Of("memory") != 3000 || hold.Index != 0 ||
			!hold.ExpiresAt.Equal(time.Now().Add(time.Minute)) || hold.Tag != h.Identity().Tag {
			t.Errorf("held %+v", hold)
		}
		if got := h.used(); got != 3000 {
			t.Errorf("used %d, want 3000", got)
		}
		h.refuses("a stranger", newOrder(t, mem(1097)), bourse.RefusedResource)
		h.refuses("another app", newOrder(t, fromHold(hold), func(o *bourse.Order) { o.App.Name = "other" }), bourse.RefusedReservation)

		order := newOrder(t, mem(1000), fromHold(hold))
		q, err := h.quote(t.Context(), order)
		if err != nil || q.Refusal != nil || !q.Held {
			t.Fatalf("quote %+v, %v; want all of it held", q, err)
		}
		for _, a := range q.Accounts { // amounts before the fill, without the held amounts that the machine takes
			if a.Resource == "memory" && a.Used != 2000 {
				t.Errorf("quoted %+v, want 2000 used", a)
			}
		}
		h.place(mem(1000), fromHold(hold))
		h.verify()
		if got := h.used(); got != 3000 {
			t.Errorf("used %d after a machine took 1000 from the hold, want 3000", got)
		}
		order = newOrder(t, mem(2500), fromHold(hold)) // 2000 MiB are held and 500 are free
		if q, err = h.quote(t.Context(), order); err != nil || q.Refusal != nil || q.Held {
			t.Fatalf("quote %+v, %v; want a quote with Held unset", q.Refusal, err)
		}
		h.refuses("more than held and free", newOrder(t, mem(3097), fromHold(hold)), bourse.RefusedResource)
		m := h.place(mem(2500), fromHold(hold))
		if got := h.used(); got != 3500 {
			t.Errorf("used %d, want 3500", got)
		}
		left, err := h.holds.Of(t.Context(), key)
		if err != nil || len(left) != 1 || left[0].Remaining.Of("memory") != 0 || left[0].Takes.Of("memory") != 3000 {
			t.Errorf("remaining holds %+v, %v; want 0 of 3000", left, err)
		}
		if _, err := h.cancel(t.Context(), m.Order); err != nil { // resources that a machine has taken out of a hold do not return to it
			t.Fatal(err)
		}
		h.reaches(m.ID, bourse.StateDestroyed)
		if got := h.used(); got != 1000 {
			t.Errorf("used %d, want the first machine's 1000", got)
		}
		h.verify()
	})
}

// A hold expires by the worker's clock, even if nothing deletes it.
func TestHoldsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		key := bourse.NewReservationKey()
		first := h.hold(newHoldOrder(t, key, 0, 10*time.Second))
		time.Sleep(5 * time.Second)
		second := h.hold(newHoldOrder(t, key, 1, 10*time.Second)) // this extends the first hold, too
		if holds, err := h.holds.Of(t.Context(), key); err != nil || len(holds) != 2 || !holds[0].ExpiresAt.Equal(holds[1].ExpiresAt) || !second.ExpiresAt.Equal(holds[0].ExpiresAt) {
			t.Errorf("holds %+v, %v; want both to end at %s", holds, err, second.ExpiresAt)
		}
		time.Sleep(10*time.Second - 1)
		if got := h.used(); got != 128 {
			t.Errorf("just before the holds expire, %d are used, want 128", got)
		}
		time.Sleep(time.Nanosecond)
		if got := h.used(); got != 0 { // although nothing has deleted the holds yet
			t.Errorf("when the holds expire, %d are used, want 0", got)
		}
		synctest.Wait()
		if err := h.store.View(func(tx *store.Tx) error {
			if end, ok := tx.NextExpiry(); ok {
				t.Errorf("a hold that expired at %s is still recorded", end)
			}
			return tx.Verify()
		}); err != nil {
			t.Error(err)
		}
		h.refuses("a claim after the expiry", newOrder(t, fromHold(first)), bourse.RefusedReservation)
		h.refuses("a late repeated order", newHoldOrder(t, key, 0, 10*time.Second), bourse.RefusedCanceled)
		for what, call := range map[string]func() error{
			"show":   func() error { _, err := h.holds.Of(t.Context(), key); return err },
			"extend": func() error { _, err := h.holds.Extend(t.Context(), key, time.Minute); return err },
		} {
			if err := call(); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("%s: %v, want not_found", what, err)
			}
		}
	})
}

func TestHoldsAreExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		key := bourse.NewReservationKey()
		h.hold(newHoldOrder(t, key, 0, 10*time.Second))
		h.hold(newHoldOrder(t, key, 1, 10*time.Second))
		time.Sleep(9 * time.Second)
		holds, err := h.holds.Extend(t.Context(), key, time.Minute)
		if err != nil || len(holds) != 2 || !holds[1].ExpiresAt.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("extended %+v, %v", holds, err)
		}
		time.Sleep(59 * time.Second)
		if got := h.used(); got != 128 {
			t.Errorf("%d are used, want 128", got)
		}
		if _, err := h.holds.Extend(t.Context(), key, 2*time.Second); err != nil { // this shortens the hold's remaining time
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := h.used(); got != 0 {
			t.Errorf("%d are used, want 0", got)
		}
		for _, ttl := range []time.Duration{-1, 0, bourse.MinHold - 1, bourse.MaxHold + 1} {
			if _, err := h.holds.Extend(t.Context(), key, ttl); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("extend by %s: %v, want invalid", ttl, err)
			}
		}
	})
}

// Repeating an order that holds capacity does not hold more capacity, and returns the same hold.
func TestReserveIsIdempotent(t *testing.T) {
	h := newHost(t, nil)
	order := newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute, func(o *bourse.Order) { o.HasChosenID = true })
	first := h.hold(order)
	fill, _ := h.tryHold(order)
	if fill == nil || !fill.Repeated || !fill.Hold.CreatedAt.Equal(first.CreatedAt) || fill.Hold.Order != first.Order {
		t.Errorf("second claim: %+v, want the first claim's hold %+v", fill, first)
	}
	q, err := h.quote(t.Context(), order)
	if err != nil || q.FilledHold == nil || q.FilledHold.Order != first.Order || q.Fill() == nil {
		t.Errorf("quote %+v, %v; want the hold", q, err)
	}
	if got := h.used(); got != 64 {
		t.Errorf("%d are used, want 64", got)
	}
	if d, err := h.decision(t.Context(), order.ID); err != nil || d.Outcome != bourse.OutcomeFilled || d.Worker != "w1" {
		t.Errorf("decision %+v, %v", d, err)
	}
	h.refuses("a machine with the same order id", newOrder(t, func(o *bourse.Order) { o.ID = order.ID }), bourse.RefusedCanceled)
	h.refuses("a volume with the same order id", newOrder(t, volumeOrder, func(o *bourse.Order) { o.ID = order.ID }), bourse.RefusedUnknown)
	h.verify()
}

// Invariant 7: if a release of a reservation, or of one of its orders, arrives before the order
// that holds capacity, the release wins. Releases are idempotent and do not affect other
// reservations.
func TestAReleaseBeforeItsClaimWins(t *testing.T) {
	h := newHost(t, nil)
	other := h.hold(newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute))
	m := h.place()
	key := bourse.ReservationKey(m.Order) // a reservation whose key equals an existing order's id, by accident or on purpose
	for range 2 {
		if err := h.releaseHolds(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	h.refuses("after the release of all orders", newHoldOrder(t, key, 0, time.Minute), bourse.RefusedCanceled)
	key = bourse.NewReservationKey()
	if _, err := h.cancel(t.Context(), key.Order(1)); err != nil {
		t.Fatal(err)
	}
	h.refuses("after the release of one order", newHoldOrder(t, key, 1, time.Minute), bourse.RefusedCanceled)
	h.hold(newHoldOrder(t, key, 0, time.Minute))
	h.hold(newHoldOrder(t, key, 2, time.Minute))
	if _, err := h.cancel(t.Context(), key.Order(2)); err != nil {
		t.Fatal(err)
	}
	if got := h.used(); got != 64*3 {
		t.Errorf("%d are used, want the amounts of a machine, another reservation's hold and one hold", got)
	}
	for range 2 {
		if err := h.releaseHolds(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if holds, err := h.holds.Of(t.Context(), other.Reservation); err != nil || len(holds) != 1 {
		t.Errorf("the other reservation: %+v, %v", holds, err)
	}
	if got := h.get(m.ID); got.State != bourse.StateStarted {
		t.Errorf("the machine is %s", got.State)
	}
	if got := h.used(); got != 64*2 {
		t.Errorf("%d are used, want the amounts of a machine and another reservation's hold", got)
	}
	h.verify()
}

// Tombstones of releases are deleted after some time, like those of orders.
func TestReleasesArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		key := bourse.NewReservationKey()
		if err := h.releaseHolds(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(store.DefaultKeep + 2*pruneEvery)
		h.hold(newHoldOrder(t, key, 0, time.Minute))
	})
}

func TestHoldsOutliveTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer func() { h.crash() }()
		short, long := bourse.NewReservationKey(), bourse.NewReservationKey()
		h.hold(newHoldOrder(t, short, 0, time.Minute))
		h.hold(newHoldOrder(t, long, 0, time.Hour))
		h.crash()
		time.Sleep(2 * time.Minute)
		h.start(nil)
		if _, err := h.holds.Of(t.Context(), short); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("the expired hold: %v, want not_found", err)
		}
		if _, err := h.holds.Of(t.Context(), long); err != nil {
			t.Errorf("the hold that has not expired: %v", err)
		}
		synctest.Wait()
		if got := h.used(); got != 64 {
			t.Errorf("%d are used, want 64", got)
		}
		h.verify()
	})
}

// An order that holds capacity is refused for the same reasons as one for a machine. If it does not
// name a program, the checks for programs are skipped.
func TestReservationsAreRefusedAsOrders(t *testing.T) {
	h := newHost(t, func(c *Config) { c.NoHost = true })
	bare := func(o *bourse.Order) { o.Config.Image, o.Config.Init = "", bourse.Init{} }
	for name, c := range map[string]struct {
		change []func(*bourse.Order)
		reason bourse.RefusalReason
	}{
		"memory":            {[]func(*bourse.Order){bare, mem(5000)}, bourse.RefusedResource},
		"slots":             {[]func(*bourse.Order){bare, requires("slots", bourse.Requirement{Count: 11})}, bourse.RefusedResource},
		"unknown countable": {[]func(*bourse.Order){bare, requires("seats", bourse.Requirement{Count: 1})}, bourse.RefusedUnknown},
		"another label":     {[]func(*bourse.Order){bare, requires("arch", bourse.Requirement{Label: "arm64"})}, bourse.RefusedLabel},
		"unknown label":     {[]func(*bourse.Order){bare, requires("zone", bourse.Requirement{Label: "b"})}, bourse.RefusedUnknown},
		"gpu":               {[]func(*bourse.Order){bare, func(o *bourse.Order) { o.Config.Guest.GPUKind, o.Config.Guest.GPUs = "a10", 1 }}, bourse.RefusedUnknown},
		"region":            {[]func(*bourse.Order){bare, func(o *bourse.Order) { o.Regions = []bourse.Choice{{"mad"}} }}, bourse.RefusedRegion},
		"image":             {nil, bourse.RefusedImage},
	} {
		order := newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute)
		for _, change := range c.change {
			change(order)
		}
		if err := order.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h.refuses(name, order, c.reason)
	}
	order := newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute, requires("slots", bourse.Requirement{Count: 3}))
	bare(order)
	if got := h.hold(order); got.Takes.Of("slots") != 3 {
		t.Errorf("held %+v, want 3 slots", got)
	}
}

// FuzzReserve checks that no request body and no key cause an internal error, or make
// the worker hold more than its ledger contains.
func FuzzReserve(f *testing.F) {
	h := newHost(f, nil)
	seed, err := codec.Marshal(bourse.Claim{Order: *newHoldOrder(f, bourse.NewReservationKey(), 0, time.Minute)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("01J00000000000000000000000", seed)
	f.Add("x", codectest.Body(f, `{"order":{"hold":{"ttl":-1}}}`))
	f.Add("01J00000000000000000000000", codectest.Body(f, `{"reservation":"01J00000000000000000000000","ttl":60000000000}`))
	f.Add("..", codectest.Body(f, `{"reservation":"..","ttl":-5}`))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		h.t = t
		encoded, err := codec.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		shown := fabric.ReservationShow.Path() + "?" + base64.RawURLEncoding.EncodeToString(encoded)
		for _, r := range []*http.Request{
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, fabric.OrderClaim.Path(), bytes.NewReader(body)),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, fabric.ReservationExtend.Path(), bytes.NewReader(body)),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, fabric.ReservationRelease.Path(), bytes.NewReader(encoded)),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, shown, nil),
		} {
			rec := httptest.NewRecorder()
			h.Handler().ServeHTTP(rec, r)
			if rec.Code >= 500 {
				t.Fatalf("%s %s: status %d %s", r.Method, r.URL, rec.Code, rec.Body)
			}
		}
		h.verify()
	})
}
