package view

import (
	"bytes"
	"fmt"
	"log/slog"

	"zombiezen.com/go/sqlite"
)

// maxTidy bounds what one tidying deletes; the next one goes on.
const maxTidy = 4096

// tidy does what has to be done from time to time: deletions and sites that
// have served their time go, quarantined rows whose time has come are taken in,
// and with another certificate we begin another epoch. An error ends Run.
func (v *View) tidy() error {
	birth, _ := v.notary.keys.Own()
	v.mu.Lock()
	v.intake.forgetWaiting()
	v.mu.Unlock()
	err := v.transact(func(b *batch) error {
		if !bytes.Equal(birth, b.pen.birth) {
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
		err := run(b.conn, "UPDATE meta SET touched_at = ? WHERE touched_at < ?", b.now.UnixNano(), b.now.Add(-touchBefore).UnixNano())
		b.written = b.written || b.conn.Changes() > 0
		if err == nil && b.written {
			err = tidyBirths(b.conn)
		}
		return err
	}, nil)
	if err != nil && fateOf(err) == fateBadRow {
		// Nothing that cannot wait: the next row that comes in will tell.
		v.config.Log.Warn("the view could not be tidied", slog.Any("err", err))
		return nil
	}
	v.forgetPresence()
	if err != nil {
		return v.failed(err, nil, nil)
	}
	return nil
}

// expire drops deletions and cancelled orders that are older than anybody who
// has not heard of them may be.
func (b *batch) expire() error {
	limit := clockAt(b.now.Add(-retention))
	var old []record
	collect := func(scan func(*sqlite.Stmt) (record, error)) func(*sqlite.Stmt) error {
		return func(s *sqlite.Stmt) error {
			r, err := scan(s)
			old = append(old, r)
			return err
		}
	}
	dead := func(s *sqlite.Stmt) (record, error) { return scanTombstone(s), nil }
	if err := query(b.conn, selectTombstones+" WHERE clock < ? LIMIT ?", collect(dead), limit, maxTidy); err != nil {
		return err
	}
	if t := b.tables[TableCancelled]; t != nil {
		if err := query(b.conn, t.all+" WHERE clock < ? LIMIT ?", collect(t.scan), limit, maxTidy); err != nil {
			return err
		}
	}
	err := query(b.conn, selectUnknown+" WHERE deleted = 1 AND clock < ? LIMIT ?", collect(scanUnknown), limit, maxTidy)
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
