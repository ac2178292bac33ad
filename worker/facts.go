package worker

import (
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// Facts returns what the worker says of itself. It counts every machine.
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

// facts returns all of Facts that costs next to nothing: it counts nothing.
func (w *Worker) facts(tx *store.Tx) (bourse.Facts, error) {
	committed, err := tx.CommittedAt(time.Now())
	cordon, failed := store.CordonOf(tx)
	return bourse.Facts{
		Cordon: cordon, Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region, Version: w.cfg.Version,
		Labels: w.host.Labels.Load().All, Drivers: w.host.Drivers, Load: w.load.read(), Accounts: w.host.Ledger.Accounts(committed),
	}, errors.Join(err, failed)
}

// Free returns what is free of each resource now.
func (w *Worker) Free() (bourse.Amounts, error) {
	var free bourse.Amounts
	err := w.store.View(func(tx *store.Tx) error {
		committed, err := tx.CommittedAt(time.Now())
		for _, a := range w.host.Ledger.Accounts(committed) {
			free = append(free, bourse.Amount{Resource: a.Resource, Amount: a.Free()})
		}
		return err
	})
	return free, err
}
