package publish

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// republish makes the view match the store. It publishes all records in the store, and removes rows
// from the view if the store has no record for them. Changes that happen in the meantime are added
// to the outbox and published afterwards.
func (p *Publisher) republish(ctx context.Context) error {
	living, err := p.liveMachines()
	if err != nil {
		return err
	}
	listed, err := p.viewMachines(ctx)
	if err != nil {
		return err
	}
	clear(p.published)
	for _, id := range listed {
		p.published[id] = struct{}{}
	}
	var u Update
	if err := p.addFacts(&u, true); err != nil {
		return err
	}
	if err := p.publishMachines(ctx, u, living); err != nil {
		return err
	}
	// The store was read before the view. If a machine is in the view but was not in the store, it
	// has therefore been destroyed, and a destroyed machine is never created again.
	gone := slices.DeleteFunc(listed, func(id bourse.MachineID) bool {
		_, lives := slices.BinarySearch(living, id)
		return lives
	})
	for batch := range slices.Chunk(gone, Batch) {
		if err := p.publish(ctx, Update{Gone: batch}); err != nil {
			return err
		}
	}
	if err := p.republishVolumes(ctx); err != nil {
		return err
	}
	if err := p.forgetImages(ctx); err != nil {
		return err
	}
	return p.publishImages(ctx)
}

func (p *Publisher) viewMachines(ctx context.Context) ([]bourse.MachineID, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return p.view.Machines(ctx)
}

// liveMachines returns the sorted ids of the machines in the store that are not destroyed.
func (p *Publisher) liveMachines() ([]bourse.MachineID, error) {
	var out []bourse.MachineID
	err := p.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.State != bourse.StateDestroyed {
				out = append(out, m.ID)
			}
		}
		return nil
	})
	return out, err
}
