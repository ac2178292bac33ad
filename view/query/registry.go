package query

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// subscribe adds the caller as a reader of the subscription for this request, creating the
// subscription if necessary. Callers with the same request share a subscription. Errors:
// rate_limited, canceled, unavailable.
func (e *Engine) subscribe(ctx context.Context, req Request, q request) (*subscription, error) {
	asked, err := json.Marshal(Request{Statement: req.Statement, Params: req.Params, Key: req.Key})
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the body is not a query: %w", err)
	}
	s, fresh, err := e.find(string(asked), q)
	if err != nil || !fresh {
		return s, err
	}
	select {
	case e.starts <- s:
		return s, nil
	case <-e.ended:
		err = bourse.Errorf(bourse.CodeUnavailable, "the server is stopping")
	case <-ctx.Done():
		err = bourse.Errorf(bourse.CodeCanceled, "the client disconnected: %w", ctx.Err())
	}
	s.end(err) // end it for all readers, because other callers may have joined it
	e.drop(s)
	return nil, err
}

func (e *Engine) find(asked string, q request) (s *subscription, fresh bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.byAsked[asked]
	if !ok && len(e.byID) >= e.subs.Max {
		return nil, false, bourse.Errorf(bourse.CodeRateLimited, "%d subscriptions are already active: try again", e.subs.Max)
	}
	if !ok {
		s = newSubscription(e, rand.Text(), asked, q)
	}
	if err := e.join(s); err != nil {
		return nil, false, err
	}
	e.byID[s.id], e.byAsked[asked] = s, s
	return s, !ok, nil
}

// resume adds the caller as a reader of an existing subscription. Errors: not_found, rate_limited.
func (e *Engine) resume(id string) (*subscription, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.byID[id]
	if !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "subscription %s not found: it may have ended; subscribe again", bourse.Quoted(id))
	}
	return s, e.join(s)
}

// join adds a reader to a subscription. The caller holds Engine.mu. Errors: rate_limited.
func (e *Engine) join(s *subscription) error {
	if e.readers >= e.subs.Readers {
		return bourse.Errorf(bourse.CodeRateLimited, "%d readers are already following subscriptions: try again", e.subs.Readers)
	}
	e.readers++
	s.mu.Lock()
	s.readers++
	s.mu.Unlock()
	return nil
}

// drop removes a reader that was added by join.
func (e *Engine) drop(s *subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readers--
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	s.idle = time.Now()
}

// leave removes the subscription if it has no readers. It reports whether it did so.
func (e *Engine) leave(s *subscription) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers > 0 {
		return false
	}
	e.remove(s)
	return true
}

// remove removes a subscription from the Engine, so that the next caller with the same request
// creates a new one. The caller holds Engine.mu.
func (e *Engine) remove(s *subscription) {
	delete(e.byID, s.id)
	if e.byAsked[s.asked] == s {
		delete(e.byAsked, s.asked)
	}
}

// end removes the subscription and reports the reason to its readers.
func (s *subscription) end(why error) {
	s.engine.mu.Lock()
	s.engine.remove(s)
	s.engine.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = why
	close(s.news)
	s.news = nil // no reader waits for further changes
}
