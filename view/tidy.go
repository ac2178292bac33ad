package view

import (
	"bytes"
	"fmt"
	"log/slog"

	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// maxTidy bounds what one tidying deletes; the next one goes on.
const maxTidy = 4096

// tidy does what has to be done from time to time: deletions and sites that
// have served their time go, quarantined rows whose time has come are taken in,
// and with another certificate we begin another epoch. An error ends Run.
func (w *writer) tidy() error {
	birth, _ := w.v.verifier.Keys.Own()
	w.v.mu.Lock()
	w.v.intake.forgetWaiting()
	w.v.mu.Unlock()
	err := w.transact(func(b *batch) error {
		if !bytes.Equal(birth, b.signer.Birth) {
			if err := b.renew(b.self.Epoch); err != nil {
				return fmt.Errorf("begin an epoch with another certificate: %w", err)
			}
		}
		if err := b.expire(); err != nil {
			return fmt.Errorf("expire deletions: %w", err)
		}
		if err := b.forgetOver(); err != nil {
			return fmt.Errorf("forget sites: %w", err)
		}
		if err := b.release(); err != nil {
			return fmt.Errorf("retry quarantined rows: %w", err)
		}
		if err := b.placeAgain(); err != nil {
			return fmt.Errorf("verify placements again: %w", err)
		}
		err := schema.Run(b.conn, "UPDATE meta SET touched_at = ? WHERE touched_at < ?", b.now.UnixNano(), b.now.Add(-touchBefore).UnixNano())
		b.written = b.written || b.conn.Changes() > 0
		if err == nil && b.written {
			err = schema.DropBirths(b.conn)
		}
		return err
	}, nil)
	if err != nil && fateOf(err) == fateBadRow {
		// Nothing that cannot wait: the next row that comes in finds out.
		w.v.config.Log.Warn("the view could not be tidied", slog.Any("err", err))
		return nil
	}
	w.forgetPresence()
	if err != nil {
		return w.failed(err, nil, nil)
	}
	return nil
}

// expire drops deletions and cancelled orders that are older than any member that
// has not received them may be.
func (b *batch) expire() error {
	old, err := b.tables.AllExpired(b.conn, wire.ClockAt(b.now.Add(-retention)), maxTidy)
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := b.remove(r); err != nil {
			return err
		}
	}
	return nil
}
