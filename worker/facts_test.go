package worker

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestNotable(t *testing.T) {
	base := func() *bourse.Facts {
		return &bourse.Facts{
			Worker: "w1", Region: "gru", Labels: map[string]string{"arch": "amd64"}, Drivers: []string{"process"}, Load: 0.5,
			Accounts: []bourse.Account{{Resource: "cpu", Total: 1600, Used: 0}, {Resource: "slots", Total: 10, Used: 9}},
		}
	}
	for name, c := range map[string]struct {
		change func(*bourse.Facts)
		want   bool
	}{
		"nothing":            {func(*bourse.Facts) {}, false},
		"a little less":      {func(f *bourse.Facts) { f.Accounts[0].Used = 100 }, false},
		"less":               {func(f *bourse.Facts) { f.Accounts[0].Used = 101 }, true},
		"none left":          {func(f *bourse.Facts) { f.Accounts[1].Used = 10 }, true},
		"more than there is": {func(f *bourse.Facts) { f.Accounts[1].Used = 11 }, true},
		"more in all":        {func(f *bourse.Facts) { f.Accounts[0].Total++ }, true},
		"a new resource":     {func(f *bourse.Facts) { f.Accounts = append(f.Accounts, bourse.Account{Resource: "gpu.a10", Total: 1}) }, true},
		"another resource":   {func(f *bourse.Facts) { f.Accounts[1].Resource = "seats" }, true},
		"another label":      {func(f *bourse.Facts) { f.Labels = map[string]string{"arch": "arm64"} }, true},
		"no driver":          {func(f *bourse.Facts) { f.Drivers = nil }, true},
		"a little load":      {func(f *bourse.Facts) { f.Load += 0.2 }, false},
		"no load":            {func(f *bourse.Facts) { f.Load = 0 }, true},
		"another release":    {func(f *bourse.Facts) { f.Version = "2" }, true},
		"machines":           {func(f *bourse.Facts) { f.Machines = map[bourse.State]int{bourse.StateStarted: 1} }, false},
	} {
		now := base()
		c.change(now)
		if got := notable(base(), now); got != c.want {
			t.Errorf("%s: notable %t, want %t", name, got, c.want)
		}
		if back := notable(now, base()); back != c.want {
			t.Errorf("%s, undone: notable %t, want %t", name, back, c.want)
		}
	}
}

// However many machines come and go, facts are told once a second at most, and
// what hardly changes is not told.
func TestFactsAreToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHost(t, func(c *Config) { c.View, c.Capacity.Memory, c.Capacity.CPUs = v, 64*200, 400 })
		defer h.crash()
		h.load.mu.Lock()
		h.load.at = time.Now().Add(time.Hour) // the load of the real host does not matter here
		h.load.mu.Unlock()
		time.Sleep(time.Minute)
		before := v.counted()
		for range 100 {
			h.place()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		h.checkView(v)
		told := v.counted().facts - before.facts
		if told == 0 || told > 6 {
			t.Errorf("facts were told %d times in 5 s of placements, want 1 to 6", told)
		}
		// One machine more is less than one part in sixteen of what is free.
		h.place()
		time.Sleep(time.Minute)
		if again := v.counted().facts - before.facts; again != told {
			t.Errorf("facts were told %d times more for one machine of a hundred", again-told)
		}
	})
}

func TestFactsCountMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		h.place()
		h.reaches(h.place(func(o *bourse.Order) { o.SkipLaunch = true }).ID, bourse.StateStopped)
		facts, err := h.Facts()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bourse.State]int{bourse.StateStarted: 1, bourse.StateStopped: 1}; !maps.Equal(facts.Machines, want) {
			t.Errorf("machines %v, want %v", facts.Machines, want)
		}
	})
}
