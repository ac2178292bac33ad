package test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// slotted starts two brokers, and two workers with the given number of slots each.
func slotted(t *testing.T, slots int) (brokers, workers []*server) {
	t.Helper()
	first := startServer(t, "a", "serve", "broker", "--listen", "127.0.0.1:0")
	brokers = []*server{first, newServer(t, "b", "serve", "broker", "--listen", "127.0.0.1:0", "--join", first.Addr)}
	for _, name := range []string{"w1", "w2"} {
		workers = append(workers, newServer(t, name, "serve", "worker", "--region", "gru", "--name", name, "--data", filepath.Join(t.TempDir(), name),
			"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--resource", fmt.Sprintf("slots=%d", slots), "--ephemeral", "--join", first.Addr))
	}
	startAll(t, append(workers, brokers[1])...)
	for _, b := range brokers {
		eventually(t, waitTimeout, "both workers are known", func() error {
			_, err := usedSlots(t, client(t, b))
			return err
		})
	}
	return brokers, workers
}

// usedSlots returns the number of used slots on both workers together.
func usedSlots(t *testing.T, api *machinesapi.Client) (used int64, err error) {
	for _, id := range []bourse.WorkerID{"w1", "w2"} {
		w, err := api.Worker(t.Context(), id)
		if err != nil {
			return 0, err
		}
		if w.Facts == nil {
			return 0, fmt.Errorf("worker %s does not answer", id)
		}
		for _, a := range w.Facts.Accounts {
			if a.Resource == "slots" {
				used += a.Used
			}
		}
	}
	return used, nil
}

func wantSlots(t *testing.T, api *machinesapi.Client, what string, want int64) {
	t.Helper()
	if got, err := usedSlots(t, api); err != nil || got != want {
		t.Errorf("%s: %d slots are used (%v), want %d", what, got, err, want)
	}
}

// slot returns a reservation for count machines with the given number of slots each.
func slot(id bourse.ReservationKey, count, each, ttl int64) machinesapi.CreateReservation {
	config := bourse.Config{Guest: &bourse.Guest{MemoryMB: 16}, Requirements: bourse.Requirements{"slots": {Count: each}}}
	return machinesapi.CreateReservation{ID: id, TTLSeconds: &ttl, Orders: []machinesapi.ReserveOrder{{Region: "gru", Config: &config, Count: &count}}}
}

// TestReservationsOnRealWorkers holds capacity on two workers through one broker. It must
// be possible to show, use, extend and release it through another broker, and a worker
// whose daemon was killed must still hold it.
func TestReservationsOnRealWorkers(t *testing.T) {
	brokers, workers := slotted(t, 5)
	a, b := client(t, brokers[0]), client(t, brokers[1])
	made, err := a.Reservations().Create(t.Context(), slot("", 2, 3, 300))
	if err != nil || len(made.Holds) != 2 || made.Holds[0].Worker == made.Holds[1].Worker {
		t.Fatalf("reserve: %+v, %v; want a hold on each worker", made, err)
	}
	wantSlots(t, b, "after the reservation", 6)

	if _, err = b.Reservations().Create(t.Context(), slot("", 3, 2, 300)); bourse.CodeOf(err) != bourse.CodeInsufficient {
		t.Errorf("reservation of three machines with room for two: %v, want insufficient_capacity", err)
	}
	wantSlots(t, b, "after the reservation that held nothing", 6)

	workers[0].Settle()
	if err := workers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := workers[0].Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the restarted worker still holds its part", func() error {
		r, err := b.Reservations().Get(t.Context(), made.ID)
		if err == nil && (len(r.Holds) != 2 || len(r.LostWorkers) > 0) {
			err = fmt.Errorf("reservation %+v, want two holds and no lost workers", r)
		}
		return err
	})
	if r, err := b.Reservations().Extend(t.Context(), made.ID, machinesapi.ExtendReservation{TTLSeconds: new(int64(600))}); err != nil || !r.ExpiresAt.After(made.ExpiresAt) {
		t.Errorf("extend: %+v, %v; want a later expiry", r, err)
	}

	order := sleeper("gru", "bourse-reservation")
	order.Config.Requirements = bourse.Requirements{"slots": {Count: 3}}
	if _, err := b.Create(t.Context(), app, order, ""); bourse.CodeOf(err) != bourse.CodeInsufficient {
		t.Errorf("order without the reservation: %v, want a refusal", err)
	}
	order.Reservation = made.ID
	on := map[bourse.WorkerID]bool{}
	for range 2 {
		m := create(t, b, order)
		on[m.Worker] = true
	}
	if len(on) != 2 {
		t.Errorf("the machines are on %v, want one machine for each hold", on)
	}
	wantSlots(t, a, "with both machines", 6)
	for range 2 {
		if err := b.Reservations().Release(t.Context(), made.ID); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	wantSlots(t, a, "after everything was released", 6)
	if _, err := a.Create(t.Context(), app, order, ""); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("order with the released reservation: %v, want failed_precondition", err)
	}
}

// TestBrokerKilledBetweenHolds tests invariant 9. A broker is killed while it creates a reservation. Another broker
// must find the existing holds by the reservation's id, and hold the rest exactly once. Holds that nobody uses must
// expire.
func TestBrokerKilledBetweenHolds(t *testing.T) {
	const count, ttl = 64, 6
	brokers, _ := slotted(t, count)
	b := client(t, brokers[1])
	brokers[0].Args = append(brokers[0].Args, "--join", brokers[1].Addr)
	for _, again := range []bool{true, false} {
		id := bourse.NewReservationKey()
		a := client(t, brokers[0])
		eventually(t, waitTimeout, "the broker that will be killed knows the workers", func() error {
			_, err := usedSlots(t, a)
			return err
		})
		result := make(chan error, 1)
		go func() {
			_, err := a.Reservations().Create(t.Context(), slot(id, count, 1, ttl))
			result <- err
		}()
		if !within(waitTimeout, func() bool { n, err := usedSlots(t, b); return err == nil && n > 0 }) {
			t.Fatal("no capacity was held")
		}
		if err := brokers[0].Kill(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err == nil {
			t.Log("the broker completed the reservation before it was killed")
		}
		if again {
			r, err := b.Reservations().Create(t.Context(), slot(id, count, 1, ttl))
			if err != nil || len(r.Holds) != count {
				t.Fatalf("reservation through the second broker: %d holds, %v; want %d", len(r.Holds), err, count)
			}
			wantSlots(t, b, "after the second broker has completed the reservation", count)
		}
		n, err := usedSlots(t, b)
		t.Logf("%d slots are held (%v)", n, err)
		eventually(t, 4*ttl*time.Second, "all holds expire", func() error {
			n, err := usedSlots(t, b)
			if err == nil && n != 0 {
				err = fmt.Errorf("%d slots are still held, want none", n)
			}
			return err
		})
		if err := brokers[0].Start(); err != nil {
			t.Fatal(err)
		}
	}
}
