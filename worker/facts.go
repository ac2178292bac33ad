package worker

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const (
	factsEvery = time.Second // at most, unless the worker leaves
	// What the view says of free amounts may be wrong by one part in
	// factsPart: a hint needs no more.
	factsPart = 16
	factsLoad = 0.25 // the same for the load
)

// Facts gives what the worker says of itself. It counts every machine.
func (w *Worker) Facts() (bourse.Facts, error) {
	var facts bourse.Facts
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		if facts, err = w.facts(tx); err != nil {
			return err
		}
		facts.Machines = map[bourse.State]int{}
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			facts.Machines[m.State]++
		}
		return addHeld(tx, facts.Accounts)
	})
	return facts, err
}

// addHeld says how much of what is used is held by reservations.
func addHeld(tx *store.Tx, accounts []bourse.Account) error {
	now := time.Now()
	for h, err := range tx.Holds() {
		if err != nil {
			return err
		}
		for i := range accounts {
			if h.ExpiresAt.After(now) {
				accounts[i].Held += h.Left.Of(accounts[i].Resource)
			}
		}
	}
	return nil
}

// facts gives all of Facts that costs next to nothing: it counts nothing.
func (w *Worker) facts(tx *store.Tx) (bourse.Facts, error) {
	committed, err := tx.CommittedAt(time.Now())
	return bourse.Facts{
		Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region, Version: w.cfg.Version,
		Labels: w.labels.Load().all, Drivers: w.drivers(), Load: w.load.read(), Accounts: w.ledger.accounts(committed),
	}, err
}

// Free gives what is free of each resource now.
func (w *Worker) Free() (bourse.Amounts, error) {
	var free bourse.Amounts
	err := w.store.View(func(tx *store.Tx) error {
		committed, err := tx.CommittedAt(time.Now())
		for _, a := range w.ledger.accounts(committed) {
			free = append(free, bourse.Amount{Resource: a.Resource, Amount: a.Free()})
		}
		return err
	})
	return free, err
}

// said is what the view was told of the worker last.
type said struct {
	facts   *bourse.Facts // nil: nothing yet
	leaving bool
	at      time.Time // when it was looked whether there is something to say
}

func (s *said) note(u *Update) {
	if u.Facts != nil {
		s.facts, s.leaving = u.Facts, u.Leaving
	}
}

// addFacts adds the worker's facts to u when they are worth a word; always
// does so in any case.
func (p *publisher) addFacts(u *Update, always bool) error {
	now, leaving := time.Now(), p.leaving.Load()
	always = always || leaving != p.said.leaving
	if !always && now.Sub(p.said.at) < factsEvery {
		return nil
	}
	var facts bourse.Facts
	err := p.w.store.View(func(tx *store.Tx) error {
		var err error
		facts, err = p.w.facts(tx)
		return err
	})
	if err != nil {
		return err
	}
	p.said.at = now
	if always || p.said.facts == nil || notable(p.said.facts, &facts) {
		u.Facts, u.Leaving = &facts, leaving
	}
	return nil
}

// notable tells whether others would want to hear of the change.
func notable(old, now *bourse.Facts) bool {
	return math.Abs(old.Load-now.Load) >= factsLoad ||
		old.Tag != now.Tag || old.Region != now.Region || old.Version != now.Version ||
		!maps.Equal(old.Labels, now.Labels) || !slices.Equal(old.Drivers, now.Drivers) ||
		!slices.EqualFunc(old.Accounts, now.Accounts, alike)
}

// alike tells whether two accounts are about the same to who looks for room.
func alike(a, b bourse.Account) bool {
	if a.Resource != b.Resource || a.Total != b.Total {
		return false
	}
	x, y := a.Free(), b.Free()
	return (x == 0) == (y == 0) && max(x, y)-min(x, y) <= max(x, y)/factsPart
}
