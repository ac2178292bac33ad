package throttle_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/internal/throttle"
)

// TestRates checks that in any period a key gets at most its rate plus the tokens of one second,
// whatever other keys do. A key that stays below its rate must never be refused.
func TestRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.IntRange(1, 50).Draw(t, "a second")
		var rates throttle.Rates
		began := time.Unix(1000, 0)
		now, allowed := began, 0
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 300), 1, 200).Draw(t, "pauses ms") {
			now = now.Add(time.Duration(step) * time.Millisecond)
			rates.Take("other", perSecond, now)
			if rates.Take("a", perSecond, now) {
				allowed++
			}
			if most := float64(perSecond)*(1+now.Sub(began).Seconds()) + 1e-6; float64(allowed) > most {
				t.Fatalf("%d tokens were taken in %s, want at most %.1f", allowed, now.Sub(began), most)
			}
		}
		for range 100 {
			now = now.Add(time.Second/time.Duration(perSecond) + time.Microsecond)
			if !rates.Take("b", perSecond, now) {
				t.Fatal("a key that stays below its rate was refused")
			}
		}
	})
}
