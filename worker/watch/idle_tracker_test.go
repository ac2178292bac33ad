package watch

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// A tracker returns the same results as a simple model that remembers everything.
func TestTrackerRemembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr, now := NewTracker(), time.Now()
		tr.now, tr.began = func() time.Time { return now }, now
		type key struct {
			id  bourse.MachineID
			who string
		}
		model := map[key]hold{}
		used := map[bourse.MachineID]time.Time{}
		busy := map[bourse.MachineID][]func(){}
		machines := rapid.SampledFrom([]bourse.MachineID{"a", "b"})
		whos := rapid.SampledFrom([]string{"p1", "p2", "p3"})
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) {
				k := key{machines.Draw(t, "machine"), whos.Draw(t, "who")}
				ttl := time.Duration(rapid.IntRange(-5, 100).Draw(t, "ttl")) * time.Second
				requests := rapid.IntRange(0, 5).Draw(t, "requests")
				tr.Use(k.id, k.who, requests, ttl)
				model[k] = hold{until: now.Add(max(0, ttl)), used: now, requests: requests}
			},
			"touch": func(t *rapid.T) {
				id := machines.Draw(t, "machine")
				tr.Touch(id)
				used[id] = now
			},
			"drop": func(t *rapid.T) {
				k := key{machines.Draw(t, "machine"), whos.Draw(t, "who")}
				tr.Drop(k.id, k.who)
				if h, ok := model[k]; ok {
					used[k.id] = later(used[k.id], h.last(now))
					if now.Before(h.until) {
						used[k.id] = now
					}
				}
				delete(model, k)
			},
			"begin": func(t *rapid.T) {
				id := machines.Draw(t, "machine")
				busy[id] = append(busy[id], tr.Begin(id))
			},
			"done": func(t *rapid.T) {
				id := machines.Draw(t, "machine")
				if n := len(busy[id]); n > 0 {
					busy[id][n-1]()
					busy[id] = busy[id][:n-1]
					used[id] = now
				}
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				for _, id := range []bourse.MachineID{"a", "b"} {
					last, until, requests := later(tr.began, used[id]), time.Time{}, 0
					for k, h := range model {
						if k.id != id {
							continue
						}
						last, until = later(last, h.last(now)), later(until, h.until)
						if k.who != "p1" && now.Before(h.until) {
							requests += h.requests
						}
					}
					got := tr.Uses(id)
					if !got.Last.Equal(last) || !got.Until.Equal(until) || got.Busy != (len(busy[id]) > 0) {
						t.Fatalf("machine %s: %+v, want last %s, until %s, busy %d", id, got, last, until, len(busy[id]))
					}
					if n := tr.Others(id, "p1"); n != requests {
						t.Fatalf("machine %s: %d requests of others than p1, want %d", id, n, requests)
					}
				}
			},
		})
	})
}

// A machine is held as soon as a use is recorded, whatever else happens at the same time. Run this
// test with the race detector.
func TestTrackerHoldsWhatIsUsed(t *testing.T) {
	tr := NewTracker()
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			who := fmt.Sprint("p", g)
			for i := range 500 {
				id := bourse.MachineID(fmt.Sprint("m", i%7))
				begin := time.Now()
				tr.Use(id, who, 1, time.Minute)
				if until, by := tr.Held(id); until.Before(begin.Add(time.Minute)) || by == "" {
					t.Errorf("machine %s is held until %s by %q, after a use of a minute at %s", id, until, by, begin)
				}
				done := tr.Begin(id)
				if !tr.Uses(id).Busy {
					t.Errorf("machine %s is not busy", id)
				}
				tr.Touch(id)
				tr.Others(id, who)
				done()
				done()
				tr.Drop(id, who)
			}
		})
	}
	group.Wait()
	for i := range 7 {
		id := bourse.MachineID(fmt.Sprint("m", i))
		if u := tr.Uses(id); u.Busy || !u.Until.IsZero() {
			t.Errorf("machine %s: %+v after all uses have ended", id, u)
		}
	}
}

// The tracker's memory is bounded, however many holders and machines there are. Holds
// for which there is no room are combined, and still keep their machines awake.
func TestTrackerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker()
		for i := range 1000 {
			tr.Use("m", fmt.Sprint("p", i), 1, time.Minute)
		}
		tr.Use("m", "late", 1, 10*time.Minute)
		tr.Use("m", "later", 1, time.Minute)
		tr.Touch("m")
		if n := len(tr.machines["m"].holds); n > maxHolders+1 {
			t.Errorf("one machine has %d holders", n)
		}
		if until, _ := tr.Held("m"); !until.Equal(time.Now().Add(10 * time.Minute)) {
			t.Errorf("held until %s, want in 10 minutes, %s", until, time.Now().Add(10*time.Minute))
		}
		for i := range maxMachines + 10 {
			tr.Use(bourse.MachineID(fmt.Sprint("n", i)), "p", 1, 2*time.Hour)
		}
		tr.Begin("another")()
		tr.Touch("and another")
		if n := len(tr.machines); n > maxMachines {
			t.Errorf("%d machines", n)
		}
		last := bourse.MachineID(fmt.Sprint("n", maxMachines+9))
		if until, _ := tr.Held(last); !until.Equal(time.Now().Add(MaxTTL)) {
			t.Errorf("machine %s, for which there was no room, is held until %s", last, until)
		}
		time.Sleep(3 * time.Hour)
		tr.Use("new", "p", 0, time.Minute)
		if n := len(tr.machines); n != 1 {
			t.Errorf("%d machines three hours later, want only the one in use", n)
		}
		tr.Forget("new")
		if n := len(tr.machines); n != 0 {
			t.Errorf("%d machines after the last one was removed", n)
		}
	})
}
