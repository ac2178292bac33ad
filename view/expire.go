package view

import (
	"bytes"
	"fmt"
	"log/slog"

	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// maxExpire is the maximum number of rows of each kind that one call to removeExpired processes. The next call
// continues with the remaining rows.
const maxExpire = 4096

// removeExpired is called periodically. It removes expired tombstones and streams, retries quarantined rows and
// placements, and starts a new epoch if the server's certificate has changed. If it returns an error, Run ends.
func (w *writer) removeExpired() error {
	birth, _ := w.view.verifier.Keys.Own()
	w.view.mu.Lock()
	w.view.intake.dropWaiting()
	w.view.mu.Unlock()
	err := w.transact(func(b *batch) error {
		if !bytes.Equal(birth, b.signer.Birth) {
			if err := b.renew(b.self.Epoch); err != nil {
				return fmt.Errorf("begin a new epoch after a certificate change: %w", err)
			}
		}
		if err := b.expire(); err != nil {
			return fmt.Errorf("expire tombstones: %w", err)
		}
		if err := b.removeExpiredStreams(); err != nil {
			return fmt.Errorf("remove expired streams: %w", err)
		}
		if err := b.retryQuarantined(); err != nil {
			return fmt.Errorf("retry quarantined rows: %w", err)
		}
		if err := b.recheckPlacements(); err != nil {
			return fmt.Errorf("recheck placements: %w", err)
		}
		err := schema.Run(b.conn, "UPDATE meta SET touched_at = ? WHERE touched_at < ?", b.now.UnixNano(), b.now.Add(-touchInterval).UnixNano())
		b.written = b.written || b.conn.Changes() > 0
		if err == nil && b.written {
			err = schema.DropBirths(b.conn)
		}
		return err
	}, nil)
	if err != nil && failureOf(err) == failBadRow {
		// Nothing in removeExpired is urgent. If the file is damaged, the next write will fail, and
		// the file will be replaced.
		w.view.config.Log.Warn("clean up view failed", slog.Any("err", err))
		return nil
	}
	w.dropPresence()
	if err != nil {
		return w.failed(err, nil, nil)
	}
	return nil
}

// expire removes tombstones and canceled orders whose retention period has ended. A member that has not received them
// by then has to replace its file.
func (b *batch) expire() error {
	old, err := b.tables.FindExpired(b.conn, wire.ClockAt(b.now.Add(-retention)), maxExpire)
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
