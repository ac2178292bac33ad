package query

import (
	"errors"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Query serves POST /v1/view/queries. If an error occurs before the first line has been sent, Query
// returns the error, and the caller must send it as an HTTP error. Query sends a later error as the
// reply's last line. Errors: invalid, rate_limited, timeout, canceled, unavailable.
func (e *Engine) Query(w http.ResponseWriter, r *http.Request) error {
	_, q, err := readRequest(w, r)
	if err != nil {
		return err
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	default:
		return bourse.Errorf(bourse.CodeRateLimited, "%d statements are already running: try again", cap(e.slots))
	}
	limits := e.limits.lower(q)
	began := e.now()
	out := &answer{lines: lines{w: w, status: http.StatusOK, stall: limits.Time}, limits: limits}
	err = e.execute(r.Context(), q, limits, out)
	switch {
	case out.failed: // the client has disconnected
		return nil
	case err == nil, errors.Is(err, errLimit):
		return ignoreWriteError(out.end(out.count, e.now().Sub(began), err != nil))
	case out.sent == 0:
		return err
	default:
		return ignoreWriteError(out.fail(err))
	}
}

// ignoreWriteError returns nil. It is used for errors from writing to a client, which only mean that the client has
// disconnected.
func ignoreWriteError(error) error { return nil }

// lower returns l with each limit lowered to the one that the query requests, if that is lower.
func (l Limits) lower(q request) Limits {
	if q.maxRows > 0 {
		l.Rows = min(l.Rows, q.maxRows)
	}
	if q.maxTime > 0 {
		l.Time = min(l.Time, q.maxTime)
	}
	return l
}

// answer is a sink that sends a query's result to the client.
type answer struct {
	lines
	limits Limits
	count  int
	failed bool
}

func (a *answer) columns(names []string) error { return a.note(a.lines.columns(names)) }

func (a *answer) row(r *record) error {
	line := append(append(append(make([]byte, 0, len(r.text)+8), `{"row":`...), r.text...), '}')
	if a.count == a.limits.Rows || a.sent+len(line) >= a.limits.Bytes {
		return errLimit
	}
	a.count++
	return a.note(a.add(line))
}

func (a *answer) note(err error) error {
	a.failed = err != nil
	return err
}
