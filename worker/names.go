package worker

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Names is what names of machines are answered from: this worker's records. Its
// machines reach one another and none of other workers.
type Names struct{ *state.State }

var _ network.Names = Names{}

// Apps implements network.Names.
func (n Names) Apps() ([]bourse.App, error) { return n.State.Apps("") }

// Machines implements network.Names. It does not wait for the disk: what it
// returns may be lost by a crash, and so may the machine's start.
func (n Names) Machines(app *bourse.App) ([]bourse.Machine, error) {
	var out []bourse.Machine
	err := n.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.MachinesOf(*app) {
			if err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	return out, err
}
