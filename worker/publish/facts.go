package publish

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const (
	factsInterval = time.Second // minimum interval between two checks, unless the worker is leaving
	// A free amount in the view may differ from the exact one by up to 1/factsDivisor, which is precise enough for a
	// hint. Smaller differences are also published, but only every exactDelay, so that people see exact amounts.
	factsDivisor = 16
	exactDelay   = 5 * time.Second
	factsLoad    = 0.25 // maximum error of the load in the view
)

// publishedFacts holds the facts that were published last.
type publishedFacts struct {
	facts   *bourse.Facts // nil if none were published yet
	leaving bool
	at      time.Time // time of the last check for changes
	sent    time.Time // when facts were published last
}

func (s *publishedFacts) note(u *Update) {
	if u.Facts != nil {
		s.facts, s.leaving, s.sent = u.Facts, u.Leaving, time.Now()
	}
}

// addFacts adds the worker's facts to u if they are due to be published, or if always is set.
func (p *Publisher) addFacts(u *Update, always bool) error {
	now, leaving := time.Now(), p.leaving.Load()
	always = always || leaving != p.shown.leaving
	if !always && now.Sub(p.shown.at) < factsInterval {
		return nil
	}
	var facts bourse.Facts
	err := p.state.Store.View(func(tx *store.Tx) error {
		var err error
		facts, err = p.facts(tx)
		return err
	})
	if err != nil {
		return err
	}
	p.shown.at = now
	if always || p.shown.facts == nil || IsUrgent(p.shown.facts, &facts) ||
		now.Sub(p.shown.sent) >= exactDelay && !slices.Equal(p.shown.facts.Accounts, facts.Accounts) {
		u.Facts, u.Leaving = &facts, leaving
	}
	return nil
}

// IsUrgent reports whether now differs so much from old that it must be published immediately.
func IsUrgent(old, now *bourse.Facts) bool {
	return math.Abs(old.Load-now.Load) >= factsLoad ||
		old.Tag != now.Tag || old.Region != now.Region || old.Version != now.Version || (old.Cordon == nil) != (now.Cordon == nil) ||
		!maps.Equal(old.Labels, now.Labels) || !slices.Equal(old.Drivers, now.Drivers) ||
		!slices.EqualFunc(old.Accounts, now.Accounts, nearlyEqual)
}

// nearlyEqual reports whether the difference between two accounts is too small to matter for
// placement.
func nearlyEqual(a, b bourse.Account) bool {
	if a.Resource != b.Resource || a.Total != b.Total {
		return false
	}
	x, y := a.Free(), b.Free()
	return (x == 0) == (y == 0) && max(x, y)-min(x, y) <= max(x, y)/factsDivisor
}
