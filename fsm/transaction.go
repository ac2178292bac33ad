package fsm

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// transaction is a journal transaction. It contains a run's new record, and the writes that a step or caller has
// added.
type transaction struct {
	record Record
	writes []Write
	commit Commit

	// The journal's goroutine sets these fields each time it executes the transaction. They are read once the commit
	// is applied.
	executed bool
	refused  error // error returned by one of writes
}

func (t *transaction) submit(j Journal) { t.commit = j.Submit(t.execute) }

func (t *transaction) execute(tx Tx) error {
	t.executed, t.refused = true, nil
	for _, write := range t.writes {
		if t.refused = callWrite(write, tx); t.refused != nil {
			return t.refused
		}
	}
	if err := tx.PutRun(t.record); err != nil {
		return fmt.Errorf("run %s: %w", t.record.ID, err)
	}
	return nil
}

// wait blocks until the transaction is durable or has failed. It does not accept a context, because the engine has to
// know the outcome.
func (t *transaction) wait() error { return t.commit.Wait(context.Background()) }

// applied waits until the transaction has been executed, and reports whether later transactions see its effects.
func (t *transaction) applied() bool {
	<-t.commit.Applied()
	return t.executed && t.refused == nil
}

func callWrite(write Write, tx Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = bourse.Errorf(bourse.CodeInternal, "transaction write panicked: %v", v)
		}
	}()
	return write(tx)
}
