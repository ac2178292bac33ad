package machines

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// findCutOff looks, after a start, for machines that live in a network which
// is no longer theirs: its namespace was removed, and the one that
// was made in its place is not joined by a program that runs already. Nothing
// short of a restart helps, and that is not the worker's to decide: it says so
// in the log and in the machine's events.
func (ms *Machines) findCutOff(ctx context.Context, running []driver.TaskID) {
	for _, id := range running {
		m, err := ms.state.Machine(ctx, id.Machine)
		if err != nil || ctx.Err() != nil || ms.ops.fittings.Network == nil || !m.PrivateIP.IsValid() || m.State != bourse.StateStarted {
			continue
		}
		if toldCutOff(&m) || !cutOff(m.Boot.PID, ms.ops.fittings.Network.Namespace(m.ID)) {
			continue
		}
		ms.state.Log.Error("machine runs without its network: restart it", "machine", m.ID, "app", m.App)
		err = ms.state.Commit(ctx, m.ID, func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, m.ID, func(now *bourse.Machine) (bool, []bourse.Event, error) {
				if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
					return false, nil, nil
				}
				return true, []bourse.Event{{Type: bourse.EventCutOff, State: now.State, Source: bourse.SourceWorker}}, nil
			})
			return err
		})
		if err != nil {
			ms.state.Log.Warn("record that a machine has no network", "machine", m.ID, "err", err)
		}
	}
}

// cutOff reports whether a process is certainly not in a network namespace.
func cutOff(pid int, namespace string) bool {
	own, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	other, err := os.Stat(namespace)
	return err == nil && !os.SameFile(own, other)
}

// toldCutOff reports whether m's events say so already since its last start.
func toldCutOff(m *bourse.Machine) bool {
	i := slices.IndexFunc(m.LastEvents, func(e bourse.Event) bool { // newest first
		return e.Type == bourse.EventCutOff || e.Type == bourse.EventStart
	})
	return i >= 0 && m.LastEvents[i].Type == bourse.EventCutOff
}
