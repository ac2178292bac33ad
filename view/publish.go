package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Publish writes the given rows of this server and waits until they are in the file. The caller passes complete rows.
// Publish drops unchanged rows, reduces changed owned rows to their changed columns, and sets the clocks of shared
// rows. It writes them in one transaction, or in several if they exceed wire.MaxRows or wire.MaxTx. It returns the last
// transaction's position, or the zero Position if nothing changed.
//
// Errors: CodeInvalid if a row does not fit its table; CodeUnavailable if the file cannot be written, Run has returned,
// or the server's owned rows were lost before they could be written (see RowsLost). If ctx is done first, the rows may
// still be published.
func (v *View) Publish(ctx context.Context, rows ...wire.Row) (wire.Position, error) {
	entries, err := v.entries(rows)
	if err != nil {
		return wire.Position{}, err
	}
	var at wire.Position
	life := v.Self().Epoch
	err = v.submit(ctx, false, func(b *batch) (err error) {
		if b.self.Epoch != life && slices.ContainsFunc(entries, func(e schema.Entry) bool { return !e.Shared }) {
			return errNewEpoch
		}
		at, err = b.publish(entries)
		return err
	})
	if err != nil {
		return wire.Position{}, fmt.Errorf("publish: %w", err)
	}
	return at, nil
}

// errNewEpoch is returned by Publish if a new epoch began before the caller's owned rows could be
// written. The first transaction of the new epoch makes other members delete this server's owned
// rows. The caller must therefore write all of its rows with Republish.
var errNewEpoch = bourse.Errorf(bourse.CodeUnavailable, "this server's rows were lost and must be published again")

// Republish is like Publish, but also deletes all other rows that this server owns in the given tables. If the server's
// stream does not contain any transaction yet, Republish writes one even if nothing has changed, so that other members
// delete the server's rows from earlier epochs.
func (v *View) Republish(ctx context.Context, tables []string, rows []wire.Row) (wire.Position, error) {
	entries, err := v.entries(rows)
	if err != nil {
		return wire.Position{}, err
	}
	for _, name := range tables {
		if t := v.tables[name]; t == nil || t.Shared {
			return wire.Position{}, bourse.Errorf(bourse.CodeInvalid, "table %s does not contain owned rows", bourse.Quoted(name))
		}
	}
	var at wire.Position
	err = v.submit(ctx, false, func(b *batch) error {
		gone, err := b.missing(tables, entries)
		if err != nil {
			return err
		}
		// Write rows before deletions: a member that receives the transactions one by one should see a machine twice
		// rather than not at all.
		if at, err = b.publish(append(slices.Clip(entries), gone...)); err != nil || at != (wire.Position{}) {
			return err
		}
		at, err = b.ensureStarted()
		return err
	})
	if err != nil {
		return wire.Position{}, fmt.Errorf("republish: %w", err)
	}
	return at, nil
}

// entries checks the rows to be published against the schema. Their clocks are set later.
func (v *View) entries(rows []wire.Row) ([]schema.Entry, error) {
	out := make([]schema.Entry, 0, len(rows))
	for _, r := range rows {
		t := v.tables[r.Table]
		if t == nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "table %s does not exist", bourse.Quoted(r.Table))
		}
		if r.Clock = 0; t.Shared {
			r.Clock = 1
		}
		if err := v.author.CheckMay(t.Shared); err != nil {
			return nil, err
		}
		e, err := v.tables.Check(v.config.Site, r)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "row %s of table %s: %w", bourse.Quoted(r.Key), r.Table, err)
		}
		e.Change = e.Change.Set()
		out = append(out, e)
	}
	return out, nil
}

// OnPublish sets the function that receives this server's transactions. The writer calls the function after each
// commit, in the order of the transactions. The function must not block or modify its arguments. Call OnPublish
// before Run.
func (v *View) OnPublish(hear func(tx *wire.Transaction, encoded []byte)) { v.writer.onPublish = hear }

// RowsLost returns a channel that is closed when this server's owned rows have been lost, because the
// file was replaced or a new epoch has begun. The caller must then call RowsLost again for a new
// channel, and publish all rows with Republish.
func (v *View) RowsLost() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost
}

// Renew starts a new epoch that is greater than the epoch of seen. It does nothing if the current
// epoch is already greater. Call Renew if other members have transactions of this server's own
// stream that the server itself doesn't have. Errors: CodeInvalid if seen belongs to another site,
// or if its epoch is so great that no valid one can follow.
func (v *View) Renew(ctx context.Context, seen wire.Stream) error {
	if seen.Site != v.config.Site || seen.Epoch >= wire.MaxEpoch-1 {
		return bourse.Errorf(bourse.CodeInvalid, "renew: no epoch of this site can follow epoch %d of %s", seen.Epoch, bourse.Quoted(string(seen.Site)))
	}
	if err := wire.CheckEpoch(seen, v.config.Now()); err != nil { // other members would also reject any later stream of this server
		return fmt.Errorf("renew: %w", err)
	}
	err := v.submit(ctx, false, func(b *batch) error {
		if b.self.Epoch > seen.Epoch {
			return nil
		}
		return b.renew(seen.Epoch)
	})
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}
