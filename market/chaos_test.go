package market_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Rates are how unreliable a network is; each is a probability.
type Rates struct {
	Lose    float64 // the request or the reply
	Refuse  float64 // unreachable, and known to be
	Delay   float64 // up to MaxDelay, either way: this is what reorders
	Repeat  float64
	Verbs   []Verb // that suffer; empty: all
	Longest time.Duration
}

// Chaos returns a network with these rates. All of it follows from
// rng, as far as the order of messages does.
func Chaos(rng *rand.Rand, rates Rates) func(Call) Fault {
	var mu sync.Mutex
	return func(c Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		var f Fault
		if len(rates.Verbs) > 0 && !slices.Contains(rates.Verbs, c.Verb) {
			return f
		}
		chance := func(p float64) bool { return rng.Float64() < p }
		some := func() time.Duration { return time.Duration(rng.Int64N(int64(rates.Longest) + 1)) }
		f.Unreachable = chance(rates.Refuse)
		if chance(rates.Lose) {
			f.LoseRequest = chance(0.5)
			f.LoseReply = !f.LoseRequest
			f.Reset = chance(0.5)
		}
		if chance(rates.Delay) {
			f.Delay = some()
		}
		if chance(rates.Delay) {
			f.ReplyDelay = some()
		}
		if chance(rates.Repeat) {
			f.Repeat = 1 + some()
		}
		return f
	}
}
