package sql

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// watchSink displays the rows and changes of a watched query.
type watchSink interface {
	begin(columns []string) error
	row(r changedRow) error
	settled(change uint64) error // all rows and changes up to this change have been delivered
	restart() error              // discard earlier output; begin and row are called again
	lost(why string)             // the connection was lost
	back(fresh bool)             // the connection is restored; if fresh is set, all rows are sent again
	close() error
}

// watch follows a query and reconnects if the connection breaks.
type watch struct {
	shell *cli.Shell
	query machinesapi.ViewQuery
	sink  watchSink

	id     string // id of the subscription
	change uint64 // number of the last change that was shown
	whole  bool   // all initial rows have been shown
}

// watchQuery shows a query's rows and all their changes until ctx is done.
func watchQuery(ctx context.Context, s *cli.Shell, q machinesapi.ViewQuery, f options) (err error) {
	w := &watch{shell: s, query: q}
	sub, err := s.Client().Subscribe(ctx, q)
	if err != nil {
		return err // do not retry if the first request fails
	}
	w.sink = newSink(s, f)
	defer func() {
		if closed := w.sink.close(); err == nil {
			err = closed
		}
	}()
	var backoff cli.Backoff
	for resumed := false; ; {
		began := s.Now()
		err := w.follow(sub, resumed)
		_ = sub.Close() // the stream is only read, so closing it cannot lose data
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !cli.Temporary(err) {
			return err
		}
		backoff.Reset(s.Now().Sub(began))
		w.sink.lost(cli.MessageOf(err))
		if sub, resumed, err = w.reconnect(ctx, &backoff); err != nil {
			return err
		}
		w.sink.back(!resumed)
	}
}

// follow shows rows and changes until the stream ends.
func (w *watch) follow(sub *machinesapi.Subscription, resumed bool) error {
	if sub.ID != "" {
		w.id = sub.ID
	}
	if !resumed {
		w.whole = false
	}
	for line, err := range sub.Lines() {
		switch {
		case err != nil:
			return err
		case line.Change != nil:
			c := line.Change
			w.change = c.ID
			err = w.sink.row(changedRow{kind: string(c.Kind), change: c.ID, id: c.Row.ID, cells: c.Row.Cells})
			if err == nil {
				err = w.sink.settled(c.ID)
			}
		case resumed: // the initial rows have already been shown
		case line.Columns != nil:
			err = w.sink.begin(line.Columns)
		case line.Row != nil:
			err = w.sink.row(rowOf(line.Row))
		case line.End != nil:
			w.change, w.whole = line.End.Change, true
			err = w.sink.settled(w.change)
		}
		if err != nil {
			return fmt.Errorf("show the answer: %w", err)
		}
	}
	return nil
}

// reconnect tries to connect until it succeeds or fails permanently. The delays between attempts
// grow.
func (w *watch) reconnect(ctx context.Context, backoff *cli.Backoff) (sub *machinesapi.Subscription, resumed bool, err error) {
	client := w.shell.Client()
	for {
		if err := backoff.Wait(ctx); err != nil {
			return nil, false, err
		}
		if w.whole && w.id != "" {
			if sub, err = client.Resume(ctx, w.id, w.change); err == nil {
				return sub, true, nil
			}
		}
		if !w.whole || w.id == "" || subscriptionGone(err) {
			if sub, err = client.Subscribe(ctx, w.query); err == nil {
				w.id = sub.ID
				return sub, false, w.sink.restart()
			}
		}
		if !cli.Temporary(err) {
			return nil, false, err
		}
	}
}

// subscriptionGone reports whether the subscription cannot be resumed. This happens if the broker
// was restarted, if another broker answered, or if the broker has discarded changes that were not
// received yet.
func subscriptionGone(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeConflict:
		return true
	default:
		return false
	}
}
