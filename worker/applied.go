package worker

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// applied hands a machine's record from the run that has started it to the
// call that waits for it, before the transaction that says so is executed, let
// alone durable. The answer may be that early because the driver is the
// witness: after a crash the resumed run finds the task and writes the same
// record. The transaction is queued by then, so whoever asks next reads it.
type applied struct {
	mu      sync.Mutex
	records map[bourse.MachineID]*bourse.Machine // guarded by mu; nil until handed over
}

// expect says that somebody will take id's record. forget must follow.
func (a *applied) expect(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.records == nil {
		a.records = map[bourse.MachineID]*bourse.Machine{}
	}
	a.records[id] = nil
}

// alone tells whether a single record is expected.
func (a *applied) alone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.records) == 1
}

// put hands m over, if somebody expects it.
func (a *applied) put(m bourse.Machine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, expected := a.records[m.ID]; expected {
		a.records[m.ID] = &m
	}
}

// take gives what was handed over, nil if nothing was.
func (a *applied) take(id bourse.MachineID) *bourse.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[id]
}

func (a *applied) forget(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, id)
}
