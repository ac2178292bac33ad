package query

import (
	"context"
	"errors"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// sink takes what a statement finds. An error of it ends the statement and is
// given back as it is.
type sink interface {
	columns(names []string) error
	row(r *record) error // r is good until it returns
}

// errEnough is what a sink says when it takes no more.
var errEnough = errors.New("enough")

// execute runs one statement, and returns the tables that it reads. It blocks
// until the statement has ended or the limits' time is over. Codes: invalid,
// timeout, canceled, unavailable.
func (e *Engine) execute(ctx context.Context, q question, limits Limits, to sink) error {
	_, err := e.ask(ctx, q, limits, func(run *execution) error { return run.rows(to) })
	return err
}

// tables prepares a statement and returns the tables that it reads. Codes: as
// execute.
func (e *Engine) tables(ctx context.Context, q question, limits Limits) (map[string]bool, error) {
	return e.ask(ctx, q, limits, func(*execution) error { return nil })
}

// execution is a prepared statement with its parameters.
type execution struct {
	conn *sqlite.Conn
	stmt *sqlite.Stmt
}

func (e *Engine) ask(ctx context.Context, q question, limits Limits, do func(*execution) error) (map[string]bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	defer cancel()
	r, err := e.pool.get()
	if err != nil {
		return nil, err
	}
	why := failure{ctx, &rules{known: r.tables, touched: map[string]bool{}}, r.account, limits}
	var ours error // a sink's, which says nothing against the connection
	err = r.under(ctx, why.rules, func() error {
		stmt, err := prepare(r.conn, q)
		if err != nil {
			return err
		}
		defer func() { _ = stmt.Finalize() }() // its error is Step's, told already
		err = do(&execution{r.conn, stmt})
		if s, ok := errors.AsType[sinkError](err); ok {
			ours = s.error
			return nil
		}
		return err
	})
	e.pool.put(r, err != nil)
	if ours != nil {
		return nil, ours
	}
	return why.rules.touched, why.explain(err)
}

// under calls do with the connection under the rules, interrupted when ctx
// ends.
func (r *reader) under(ctx context.Context, rules *rules, do func() error) error {
	r.account.begin()
	var stopping sync.WaitGroup
	stopping.Add(1)
	cancel := context.AfterFunc(ctx, func() {
		defer stopping.Done()
		r.account.stopped.Store(true)
	})
	defer func() {
		if cancel() {
			return
		}
		stopping.Wait() // or it would stop the next statement
	}()
	if err := r.conn.SetAuthorizer(rules); err != nil {
		return err
	}
	r.conn.SetInterrupt(ctx.Done())
	defer r.conn.SetInterrupt(nil)
	return do()
}

// prepare compiles the statement and returns its parameters their values. Codes:
// invalid.
func prepare(conn *sqlite.Conn, q question) (*sqlite.Stmt, error) {
	stmt, trailing, err := conn.PrepareTransient(q.statement)
	if err != nil {
		return nil, err
	}
	rest := strings.Trim(q.statement[len(q.statement)-trailing:], "; \t\r\n\f")
	switch {
	case rest != "":
		err = bourse.Errorf(bourse.CodeInvalid, "one statement at a time: %s is too much", bourse.Quoted(rest))
	case stmt.ColumnCount() == 0:
		err = bourse.Errorf(bourse.CodeInvalid, "the statement asks for nothing: use SELECT")
	default:
		err = q.params.bind(stmt)
	}
	if err != nil {
		_ = stmt.Finalize()
		return nil, err
	}
	return stmt, nil
}

// sinkError tells an error of the sink from one of SQLite.
type sinkError struct{ error }

// Unwrap returns the sink's own error.
func (e sinkError) Unwrap() error { return e.error }

// rows steps through the result. The columns are given when the first step has
// succeeded: an error before it has nothing sent.
func (x *execution) rows(to sink) error {
	names := columnNames(x.conn, x.stmt)
	var r record
	for begun := false; ; begun = true {
		more, err := x.stmt.Step()
		if err != nil {
			return err
		}
		if !begun {
			if err := to.columns(names); err != nil {
				return sinkError{err}
			}
		}
		if !more {
			return nil
		}
		r.read(x.stmt)
		if err := to.row(&r); err != nil {
			return sinkError{err}
		}
	}
}
