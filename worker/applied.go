package worker

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// applied hands a machine's record from the call that records its start to the
// run that carries it out, and from that back to the call that waits for it,
// before the transaction that says so is executed, let alone durable. The
// answer may be that early because the driver is the witness: after a crash the
// resumed run finds the task and writes the same record. The transaction is
// queued by then, so whoever asks next reads it.
//
// Nothing is handed over of a machine that somebody else changes meanwhile: what
// the start leaves is then known once its transaction has executed.
type applied struct {
	mu      sync.Mutex
	records map[bourse.MachineID]handover // guarded by mu
	changes map[bourse.MachineID]int      // changes under way; guarded by mu
}

// handover is what is known of a machine that a call waits for. Nobody changes
// the records.
type handover struct {
	intent  *bourse.Machine // as it is to start; nil: the store has it
	started *bourse.Machine // as the start leaves it; nil until then
	mixed   bool            // somebody else changes it: neither is to be relied on
}

// expect says that somebody will take id's record. forget must follow.
func (a *applied) expect(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.records == nil {
		a.records = map[bourse.MachineID]handover{}
	}
	_, other := a.records[id]
	a.records[id] = handover{mixed: other || a.changes[id] > 0}
}

// changing says that somebody is about to change id's record, until the
// returned function is called: when that is durable or refused.
func (a *applied) changing(id bourse.MachineID) (changed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes == nil {
		a.changes = map[bourse.MachineID]int{}
	}
	a.changes[id]++
	if _, expected := a.records[id]; expected {
		a.records[id] = handover{mixed: true}
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.changes[id]--; a.changes[id] == 0 {
			delete(a.changes, id)
		}
	}
}

// intend hands over m as it is being recorded, for the run that will start it.
func (a *applied) intend(m bourse.Machine) { a.give(m.ID, handover{intent: &m}) }

// put hands m over as its start leaves it.
func (a *applied) put(m bourse.Machine) { a.give(m.ID, handover{started: &m}) }

// give keeps h, if somebody expects it.
func (a *applied) give(id bourse.MachineID, h handover) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, expected := a.records[id]; expected && !old.mixed {
		a.records[id] = h
	}
}

// intent gives the record of a machine that is to start, once: nil if it was
// not handed over, and to who tries again. Somebody may have changed the
// store's since.
func (a *applied) intent(id bourse.MachineID) *bourse.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.records[id]
	if h.intent != nil {
		a.records[id] = handover{}
	}
	return h.intent
}

// take gives what put handed over, nil if nothing was.
func (a *applied) take(id bourse.MachineID) *bourse.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[id].started
}

func (a *applied) forget(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, id)
}
