package worker

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// However many machines come and go, the worker publishes its facts at most once a second. A series of small changes is
// published once, after a delay.
func TestFactsArePublishedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHost(t, func(c *Config) { c.View, c.Capacity.Memory, c.Capacity.CPUs = v, 64*200, 400 })
		defer h.crash()
		h.load.mu.Lock()
		h.load.at = time.Now().Add(time.Hour) // ignore the real host's load
		h.load.mu.Unlock()
		time.Sleep(time.Minute)
		before := v.counted()
		for range 100 {
			h.place()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		h.checkView(v)
		published := v.counted().facts - before.facts
		if published == 0 || published > 7 {
			t.Errorf("facts were published %d times during 5 s of placements and afterwards, want 1 to 7", published)
		}
		// Another machine changes the free amounts by less than a sixteenth.
		h.place()
		time.Sleep(time.Minute)
		if again := v.counted().facts - before.facts; again != published+1 {
			t.Errorf("facts were published %d more times after one machine in a hundred was added, want once", again-published)
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
