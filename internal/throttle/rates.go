package throttle

import (
	"sync"
	"time"
)

// maxRates limits the number of keys in memory.
const maxRates = 1 << 16

// Rates contains a token bucket for each key. A bucket holds at most as many tokens as it receives
// in a second. Rates is safe for concurrent use, and its zero value is ready to use.
type Rates struct {
	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket is the state of a key's bucket when it was last used.
type bucket struct {
	tokens float64
	at     time.Time
}

// Take takes a token from key's bucket, which receives perSecond tokens each second. It returns
// false if the bucket is empty.
func (r *Rates) Take(key string, perSecond int, now time.Time) bool {
	full := float64(perSecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.buckets[key]
	if !known {
		if r.buckets == nil {
			r.buckets = map[string]bucket{}
		}
		if len(r.buckets) >= maxRates {
			r.evict(now)
		}
		b = bucket{full, now}
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens, b.at = min(full, b.tokens+full*passed.Seconds()), now
	}
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	r.buckets[key] = b
	return ok
}

// evict removes the keys that have not been used for a second, because their buckets are full
// again. If too many keys remain, it removes all of them.
func (r *Rates) evict(now time.Time) {
	for key, b := range r.buckets {
		if now.Sub(b.at) >= time.Second {
			delete(r.buckets, key)
		}
	}
	if len(r.buckets) >= maxRates {
		clear(r.buckets)
	}
}
