package sql

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// watchSink shows a watched answer.
type watchSink interface {
	begin(columns []string) error
	row(r changedRow) error
	settled(change uint64) error // everything so far is as after this change
	restart() error              // what was shown is void: columns and rows follow again
	lost(why string)             // the connection broke
	back(fresh bool)             // there is one again; fresh: all rows follow
	close() error
}

// watch follows one query over any number of connections.
type watch struct {
	shell *cli.Shell
	query machinesapi.ViewQuery
	sink  watchSink

	id     string // of the subscription
	change uint64 // the last that was shown
	whole  bool   // all rows of the subscription have been shown
}

// watchQuery shows an answer and every change of it, until ctx ends.
func watchQuery(ctx context.Context, s *cli.Shell, q machinesapi.ViewQuery, f options) (err error) {
	w := &watch{shell: s, query: q}
	sub, err := s.Client().Subscribe(ctx, q)
	if err != nil {
		return err // what has never worked is not tried again
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
		_ = sub.Close() // it was only read
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !cli.Passing(err) {
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

// follow shows what comes until the stream breaks off.
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
		case resumed: // the rows are there already
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

// reconnect tries again, later and later, until it works or will not.
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
		if !w.whole || w.id == "" || forgotten(err) {
			if sub, err = client.Subscribe(ctx, w.query); err == nil {
				w.id = sub.ID
				return sub, false, w.sink.restart()
			}
		}
		if !cli.Passing(err) {
			return nil, false, err
		}
	}
}

// forgotten reports whether a subscription is no more: its broker was started
// again, or is another one, or no longer has the changes since.
func forgotten(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeConflict:
		return true
	default:
		return false
	}
}
