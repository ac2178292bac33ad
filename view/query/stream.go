package query

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// PathSubscriptions is the path at which subscriptions are created. A subscription's own path consists of
// this path, a slash and the subscription's ID.
const PathSubscriptions = "/v1/view/subscriptions"

// batch is the approximate maximum size, in bytes, of the changes that are passed to a reader at
// once.
const batch = 256 << 10

// Subscribe serves POST /v1/view/subscriptions. It sends the rows and then the changes, until the
// client disconnects or is too slow, or the subscription ends. It reports errors in the same way as
// Query: invalid, rate_limited, timeout, canceled, unavailable.
func (e *Engine) Subscribe(w http.ResponseWriter, r *http.Request) error {
	req, q, err := readRequest(w, r)
	if err != nil {
		return err
	}
	s, err := e.subscribe(r.Context(), req, q)
	if err != nil {
		return err
	}
	defer e.drop(s)
	return s.begin(r.Context(), &lines{w: w, status: http.StatusCreated, stall: e.subs.WriteTimeout})
}

// Resume serves GET /v1/view/subscriptions/{id}. If the query parameter "from" contains the number
// of a change, Resume sends the changes that follow it. Without the parameter, it sends the same
// lines as Subscribe. Errors: invalid, not_found (the subscription has ended, or the changes are no
// longer available; the client must subscribe again), rate_limited, canceled.
func (e *Engine) Resume(w http.ResponseWriter, r *http.Request) error {
	from := r.URL.Query().Get("from")
	n, err := strconv.ParseInt(from, 10, 64)
	if from != "" && err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "invalid from %s: use the number of a change", bourse.Quoted(from))
	}
	s, err := e.resume(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer e.drop(s)
	out := &lines{w: w, status: http.StatusOK, stall: e.subs.WriteTimeout}
	if from == "" {
		return s.begin(r.Context(), out)
	}
	now, _, err := s.firstResult(r.Context())
	if err != nil {
		return err
	}
	// Before sending the status, check whether the changes are available.
	if _, _, err := s.changes(n, false); err != nil {
		return err
	}
	s.name(out)
	if err := errors.Join(out.columns(now.columns), out.flush()); err != nil {
		return ignoreWriteError(err)
	}
	return ignoreWriteError(s.stream(r.Context(), out, n))
}

// begin sends the current rows, and then the changes as they occur.
func (s *subscription) begin(ctx context.Context, out *lines) error {
	now, n, err := s.firstResult(ctx)
	if err != nil {
		return err
	}
	s.name(out)
	if err := out.columns(now.columns); err != nil {
		return ignoreWriteError(err)
	}
	for _, row := range now.rows {
		if err := out.add(row.line()); err != nil {
			return ignoreWriteError(err)
		}
	}
	line := strconv.AppendInt([]byte(`{"end":{"change":`), n, 10)
	if err := errors.Join(out.add(append(line, "}}"...)), out.flush()); err != nil {
		return ignoreWriteError(err)
	}
	return ignoreWriteError(s.stream(ctx, out, n))
}

func (s *subscription) name(out *lines) {
	out.w.Header().Set(HeaderSubscription, s.id)
	out.w.Header().Set("Location", PathSubscriptions+"/"+s.id)
}

// firstResult waits until the subscription has a result. It returns the current result, and the
// number of the latest change that the result includes. It returns the same errors as
// Engine.execute.
func (s *subscription) firstResult(ctx context.Context) (*result, int64, error) {
	for {
		s.mu.Lock()
		now, n, ended, news := s.now, s.history.last(), s.ended, s.news
		s.mu.Unlock()
		switch {
		case ended != nil:
			return nil, 0, ended
		case now != nil:
			return now, n, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, 0, bourse.Errorf(bourse.CodeCanceled, "the client disconnected: %w", ctx.Err())
		}
	}
}

// stream sends the changes that follow change n, until the client disconnects or is too slow, or the subscription
// ends. It returns an error only if a write fails.
func (s *subscription) stream(ctx context.Context, out *lines, n int64) error {
	for following := false; ; following = true {
		next, news, err := s.changes(n, following)
		if err != nil {
			return out.fail(err)
		}
		if len(next) == 0 {
			select {
			case <-news:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		for _, line := range next {
			if err := out.add(line); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		n += int64(len(next))
	}
}

// changes returns the subscription's changes after number n, about batch bytes in total. If there are none yet, it
// returns a channel that is closed when there are new ones. If following is true and the reader is so slow that it
// might soon be unable to resume, changes returns the error unavailable. Other errors: invalid, not_found, and the
// reason why the subscription has ended.
func (s *subscription) changes(n int64, following bool) ([][]byte, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if following && s.history.nearlyDropped(n) {
		return nil, nil, bourse.Errorf(bourse.CodeUnavailable, "the client reads too slowly: resume from change %d", n)
	}
	lines, err := s.history.after(n, batch)
	if err == nil && len(lines) == 0 && s.ended != nil {
		err = s.ended
	}
	return lines, s.news, err
}
