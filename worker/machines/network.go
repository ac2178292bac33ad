package machines

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/store"
)

// address records m's address in the private network of its app, as the app
// is in this transaction. It is m's for life, whatever becomes of the app.
func address(tx *store.Tx, m *bourse.Machine) error {
	app, ok, err := tx.App(m.App)
	if err != nil {
		return err
	}
	if !ok {
		return bourse.Errorf(bourse.CodeInternal, "app %s of machine %s has no record", m.App, m.ID)
	}
	m.Network = app.PrivateNetwork()
	m.PrivateIP = bourse.PrivateAddress(m.Network, m.ID)
	return nil
}

// recoverNetworks restores the networks of the machines that may run, and
// removes all others.
func (ms *Machines) recoverNetworks(ctx context.Context) error {
	if ms.ops.fittings.Network == nil {
		return nil
	}
	var keep []network.Spec
	err := ms.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.PrivateIP.IsValid() && mayRun(&m) {
				keep = append(keep, SpecOf(&m))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ms.ops.fittings.Network.Recover(ctx, keep)
}

// mayRun reports whether m runs, or will without being asked to.
func mayRun(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateSuspended, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateDestroying:
		return alive(m)
	case bourse.StateCreated, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed:
		return false
	}
	return false
}
