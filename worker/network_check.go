package worker

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// findCutOff looks, after a start, for machines that live in a network which
// is no longer theirs: somebody has removed its namespace, and the one that
// was made in its place is not joined by a program that runs already. Nothing
// short of a restart helps, and that is not the worker's to decide: it says so
// in the log and in the machine's events.
func (w *Worker) findCutOff(ctx context.Context, running []driver.TaskID) {
	for _, id := range running {
		m, err := w.machine(ctx, id.Machine)
		if err != nil || ctx.Err() != nil || w.cfg.Network == nil || !m.PrivateIP.IsValid() || m.State != bourse.StateStarted {
			continue
		}
		if toldCutOff(&m) || !cutOff(m.Boot.PID, w.cfg.Network.Namespace(m.ID)) {
			continue
		}
		w.log.Error("machine runs without its network: restart it", "machine", m.ID, "app", m.App)
		err = w.commit(ctx, m.ID, func(tx *store.Tx) error {
			_, err := changeMachine(tx, m.ID, func(now *bourse.Machine) (bool, []bourse.Event, error) {
				if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
					return false, nil, nil
				}
				return true, []bourse.Event{{Type: bourse.EventCutOff, State: now.State, Source: bourse.SourceWorker}}, nil
			})
			return err
		})
		if err != nil {
			w.log.Warn("record that a machine has no network", "machine", m.ID, "err", err)
		}
	}
}

// cutOff tells whether a process is certainly not in a network namespace.
func cutOff(pid int, namespace string) bool {
	own, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	other, err := os.Stat(namespace)
	return err == nil && !os.SameFile(own, other)
}

// toldCutOff tells whether m's events say so already since its last start.
func toldCutOff(m *bourse.Machine) bool {
	i := slices.IndexFunc(m.LastEvents, func(e bourse.Event) bool { // newest first
		return e.Type == bourse.EventCutOff || e.Type == bourse.EventStart
	})
	return i >= 0 && m.LastEvents[i].Type == bourse.EventCutOff
}
