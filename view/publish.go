package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Publish writes rows of ours and waits until they are in the file. The rows
// are whole; what equals the present is dropped, and an owned row is cut down
// to what changed. They become one transaction, unless they exceed MaxRows or
// MaxTx. The clock of shared rows is set here. It returns the position of the
// last transaction, zero when nothing changed. CodeInvalid: a row does not fit
// its table. CodeUnavailable: the disk refuses, or Run has ended. When ctx
// ends first, the rows may get in nevertheless. Owned rows that waited when
// our rows were lost (see Lost) are CodeUnavailable too.
func (v *View) Publish(ctx context.Context, rows ...wire.Row) (wire.Position, error) {
	entries, err := v.entries(rows)
	if err != nil {
		return wire.Position{}, err
	}
	var at wire.Position
	life := v.Self().Epoch
	err = v.submit(ctx, false, func(b *batch) (err error) {
		if b.self.Epoch != life && slices.ContainsFunc(entries, func(e schema.Entry) bool { return !e.Shared }) {
			return errNewLife
		}
		at, err = b.publish(entries)
		return err
	})
	if err != nil {
		return wire.Position{}, fmt.Errorf("publish: %w", err)
	}
	return at, nil
}

// errNewLife keeps the first transaction of a new life for a Republish: others
// forget our old rows with it, and would have one row of many.
var errNewLife = bourse.Errorf(bourse.CodeUnavailable, "our rows are lost, and are to be published again")

// Republish is Publish, and deletes those of our rows in these owned tables
// that are not among rows. It makes a transaction even of nothing when our
// stream has none yet, so that others forget an earlier life of ours.
func (v *View) Republish(ctx context.Context, tables []string, rows []wire.Row) (wire.Position, error) {
	entries, err := v.entries(rows)
	if err != nil {
		return wire.Position{}, err
	}
	for _, name := range tables {
		if t := v.tables[name]; t == nil || t.Shared {
			return wire.Position{}, bourse.Errorf(bourse.CodeInvalid, "table %s is not owned by its sites", bourse.Quoted(name))
		}
	}
	var at wire.Position
	err = v.submit(ctx, false, func(b *batch) error {
		gone, err := b.missing(tables, entries)
		if err != nil {
			return err
		}
		// Rows come first: a member that receives the transactions one by one sees a
		// machine twice rather than not at all.
		if at, err = b.publish(append(slices.Clip(entries), gone...)); err != nil || at != (wire.Position{}) {
			return err
		}
		at, err = b.announce()
		return err
	})
	if err != nil {
		return wire.Position{}, fmt.Errorf("republish: %w", err)
	}
	return at, nil
}

// entries checks rows of ours. Their clocks come later.
func (v *View) entries(rows []wire.Row) ([]schema.Entry, error) {
	out := make([]schema.Entry, 0, len(rows))
	for _, r := range rows {
		t := v.tables[r.Table]
		if t == nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "there is no table %s", bourse.Quoted(r.Table))
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

// OnPublish sets what receives our transactions: the writer calls it after
// each commit, in order. It must neither block nor change what it gets. Set it
// before Run.
func (v *View) OnPublish(hear func(tx *wire.Transaction, encoded []byte)) { v.writer.onPublish = hear }

// Lost returns a channel that is closed when our rows are gone: the file was
// replaced, or a new epoch began. Republish then, and ask Lost again.
func (v *View) Lost() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost
}

// Renew begins a new epoch of ours, greater than that of seen: the others know
// more of our stream than we do. It does nothing when our epoch is greater
// already. CodeInvalid: seen is not of our site, or can't be outdone.
func (v *View) Renew(ctx context.Context, seen wire.Stream) error {
	if seen.Site != v.config.Site || seen.Epoch >= wire.MaxEpoch-1 {
		return bourse.Errorf(bourse.CodeInvalid, "renew: no life of ours follows epoch %d of %s", seen.Epoch, bourse.Quoted(string(seen.Site)))
	}
	if err := wire.CheckEpoch(seen, v.config.Now()); err != nil { // no member takes it in, nor what would follow it
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
