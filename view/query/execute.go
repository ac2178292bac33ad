package query

import (
	"context"
	"errors"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// sink receives a statement's result. If one of its methods returns an error, the statement stops, and execute
// returns the error unchanged.
type sink interface {
	columns(names []string) error
	row(r *record) error // r is valid only during the call
}

// errLimit is returned by a sink that cannot accept another row because of its limits.
var errLimit = errors.New("the sink has reached its limits")

// execute runs one statement and passes its result to a sink. It blocks until the statement has ended or the time limit
// has expired. Errors: invalid, timeout, canceled, unavailable.
func (e *Engine) execute(ctx context.Context, q request, limits Limits, to sink) error {
	_, err := e.ask(ctx, q, limits, func(run *execution) error { return run.rows(to) })
	return err
}

// tables prepares a statement without running it and returns the tables that it would read. It returns the same errors
// as execute.
func (e *Engine) tables(ctx context.Context, q request, limits Limits) (map[string]bool, error) {
	return e.ask(ctx, q, limits, func(*execution) error { return nil })
}

// execution is a prepared statement with its parameters.
type execution struct {
	conn *sqlite.Conn
	stmt *sqlite.Stmt
}

func (e *Engine) ask(ctx context.Context, q request, limits Limits, do func(*execution) error) (map[string]bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	defer cancel()
	r, err := e.pool.get()
	if err != nil {
		return nil, err
	}
	why := failure{ctx, &rules{known: r.tables, touched: map[string]bool{}}, r.account, limits}
	var ours error // an error from the sink, after which the connection remains usable
	err = r.withRules(ctx, why.rules, func() error {
		stmt, err := prepare(r.conn, q)
		if err != nil {
			return err
		}
		defer func() { _ = stmt.Finalize() }() // Step has already returned its error
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

// withRules sets rules as the connection's authorizer and then calls do. If ctx is done before do returns, the connection
// is interrupted.
func (r *reader) withRules(ctx context.Context, rules *rules, do func() error) error {
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
		stopping.Wait() // a late interrupt could stop the connection's next statement
	}()
	if err := r.conn.SetAuthorizer(rules); err != nil {
		return err
	}
	r.conn.SetInterrupt(ctx.Done())
	defer r.conn.SetInterrupt(nil)
	return do()
}

// prepare compiles a statement and binds its parameters. Errors: invalid.
func prepare(conn *sqlite.Conn, q request) (*sqlite.Stmt, error) {
	stmt, trailing, err := conn.PrepareTransient(q.statement)
	if err != nil {
		return nil, err
	}
	rest := strings.Trim(q.statement[len(q.statement)-trailing:], "; \t\r\n\f")
	switch {
	case rest != "":
		err = bourse.Errorf(bourse.CodeInvalid, "only one statement is allowed: remove %s", bourse.Quoted(rest))
	case stmt.ColumnCount() == 0:
		err = bourse.Errorf(bourse.CodeInvalid, "the statement has no result: use SELECT")
	default:
		err = q.params.bind(stmt)
	}
	if err != nil {
		_ = stmt.Finalize()
		return nil, err
	}
	return stmt, nil
}

// sinkError wraps an error from a sink, to distinguish it from an error from SQLite.
type sinkError struct{ error }

// Unwrap returns the error from the sink.
func (e sinkError) Unwrap() error { return e.error }

// rows runs the statement and passes its result to a sink. It passes the columns only once the first step has
// succeeded. If that step fails, nothing has been sent yet.
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
