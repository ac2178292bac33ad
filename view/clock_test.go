package view

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse/view/wire"
)

func TestClockOfAWrite(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for name, c := range map[string]struct {
		last, below wire.Clock
		want        wire.Clock
	}{
		"the time":                            {0, 0, wire.ClockAt(now)},
		"after the last write":                {wire.ClockAt(now) + 7, 0, wire.ClockAt(now) + 8},
		"after the old version":               {0, wire.ClockAt(now) + 9, wire.ClockAt(now) + 10},
		"far ahead once, but not permanently": {wire.ClockAt(now.Add(time.Hour)), 0, wire.ClockAt(now)},
	} {
		b := newBatch(nil, nil, &state{clock: c.last}, now, nil, nil)
		if got := b.nextClock(c.below); got != c.want {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
}
