package throttle

import (
	"sync"
	"time"
)

// maxRates bounds how many keys are remembered: as many as are active at once.
const maxRates = 1 << 16

// Rates lets each of many keys begin so many things a second, and a second's worth
// of them at once. It is safe for concurrent use; its zero value is ready.
type Rates struct {
	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket is what a key had at a time.
type bucket struct {
	left float64
	at   time.Time
}

// Take reports whether key may begin one more at a rate of perSecond.
func (r *Rates) Take(key string, perSecond int, now time.Time) bool {
	most := float64(perSecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.buckets[key]
	if !known {
		if r.buckets == nil {
			r.buckets = map[string]bucket{}
		}
		if len(r.buckets) >= maxRates {
			r.forget(now)
		}
		b = bucket{most, now}
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.left, b.at = min(most, b.left+most*passed.Seconds()), now
	}
	ok := b.left >= 1
	if ok {
		b.left--
	}
	r.buckets[key] = b
	return ok
}

// forget removes the keys that have begun nothing for a second: they have their
// full allowance. If there are none, it removes all.
func (r *Rates) forget(now time.Time) {
	for key, b := range r.buckets {
		if now.Sub(b.at) >= time.Second {
			delete(r.buckets, key)
		}
	}
	if len(r.buckets) >= maxRates {
		clear(r.buckets)
	}
}
