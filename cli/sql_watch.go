package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	watchBackoffFirst = 250 * time.Millisecond
	watchBackoffMost  = 10 * time.Second
)

// watchSink shows a watched answer.
type watchSink interface {
	begin(columns []string) error
	row(r sqlRow) error
	settled(change uint64) error // everything so far is as after this change
	restart() error              // what was shown is void: columns and rows follow again
	lost(why string)             // the connection broke
	back(anew bool)              // there is one again; anew: with all rows
	close() error
}

// watch follows one query over any number of connections.
type watch struct {
	shell *shell
	query machinesapi.ViewQuery
	sink  watchSink

	id     string // of the subscription
	change uint64 // the last that was shown
	whole  bool   // all rows of the subscription have been shown
}

// watchSQL shows an answer and every change of it, until ctx ends.
func (s *shell) watchSQL(ctx context.Context, q machinesapi.ViewQuery, f sqlFlags) (err error) {
	w := &watch{shell: s, query: q}
	sub, err := s.client().Subscribe(ctx, q)
	if err != nil {
		return err // nobody is kept waiting for what has never worked
	}
	w.sink = s.watchSink(f)
	defer func() {
		if closed := w.sink.close(); err == nil {
			err = closed
		}
	}()
	backoff := watchBackoffFirst
	for resumed := false; ; {
		began := s.Now()
		err := w.follow(sub, resumed)
		_ = sub.Close() // it was only read
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !worthAnother(err) {
			return err
		}
		if s.Now().Sub(began) > watchBackoffMost {
			backoff = watchBackoffFirst
		}
		w.sink.lost(messageOf(err))
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
			err = w.sink.row(sqlRow{kind: string(c.Kind), change: c.ID, id: c.Row.ID, cells: c.Row.Cells})
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
func (w *watch) reconnect(ctx context.Context, backoff *time.Duration) (sub *machinesapi.Subscription, resumed bool, err error) {
	client := w.shell.client()
	for {
		// Half of the time at least, so that those whom a broker left do not
		// come back all at once.
		wait := *backoff/2 + rand.N(*backoff/2+1)
		*backoff = min(2**backoff, watchBackoffMost)
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case <-time.After(wait):
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
		if !worthAnother(err) {
			return nil, false, err
		}
	}
}

// worthAnother tells whether a failure is the connection's or the server's
// moment, and not the statement's.
func worthAnother(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeRateLimited:
		return true
	case bourse.CodeTimeout: // the statement's, unless a proxy on the way says so
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		return ok && reply.Status >= http.StatusInternalServerError
	default:
		return false
	}
}

// forgotten tells whether a subscription is no more: its broker was started
// anew, or is another one, or no longer has the changes since.
func forgotten(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeConflict:
		return true
	default:
		return false
	}
}
