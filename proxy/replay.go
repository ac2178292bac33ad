package proxy

import (
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
)

// replayState is the state of a request's replays, which machines initiate with fly-replay.
type replayState struct {
	clientRequest *http.Request // the request as the client sent it
	replays       int           // number of replays so far
	until         time.Time     // deadline for the replay to reach a machine; zero: only the proxy's own limits apply

	current   *replay.Replay // the replay in progress; nil: none
	from      replay.Issuer
	startedAt time.Time // when the replay in progress began
	original  *http.Request
	criteria  Criteria // the request's criteria before the replay in progress
	cached    bool     // the replay in progress comes from the cache
	bypassed  bool     // the client asked to bypass the cache
	fellBack  bool     // the request has fallen back, and must not be replayed again
}

// deadline returns limit, which is one of the proxy's own deadlines, or the replay's deadline if that is earlier.
func (s *replayState) deadline(limit time.Time) time.Time {
	if !s.until.IsZero() && s.until.Before(limit) {
		return s.until
	}
	return limit
}

// canFallBack reports whether the request has a fallback if its replay does not reach a machine.
func (s *replayState) canFallBack() bool {
	return s.current != nil && (s.cached || s.current.Fallback != replay.NoFallback)
}

func (s *replayState) expired() bool { return !s.until.IsZero() && !time.Now().Before(s.until) }

// useCachedReplay returns the request to send first. If the cache contains a replay for req, this is the replayed
// request, and otherwise req itself.
func (p *Proxy) useCachedReplay(x *exchange, req *http.Request) *http.Request {
	if p.Replays == nil || x.criteria.Only || x.criteria.Force {
		return req
	}
	kept, status := p.cache.Lookup(x.target, req, x.began)
	x.replay.bypassed = status == replay.Bypass
	if status != replay.Hit {
		return req
	}
	from := replay.Issuer{Target: x.target, Machine: kept.Issuer, Region: kept.Region, Port: x.listener.Port}
	dest, err := replay.Plan(&kept.Replay, from, p.Replays.Apps)
	if err != nil {
		p.cache.Invalidate(x.target, req)
		return req
	}
	next := cloneRequest(req)
	next.Header.Set(replay.HeaderStatus, string(replay.Hit))
	x.startReplay(&kept.Replay, from, dest, req)
	x.replay.cached = true
	return next
}

// cloneRequest returns a copy of a request with its own URL and headers, because the previous attempt may still be
// using those of the original. It removes the headers that describe an earlier replay.
func cloneRequest(req *http.Request) *http.Request {
	next := req.WithContext(req.Context())
	next.Header = req.Header.Clone()
	next.URL = new(url.URL)
	*next.URL = *req.URL
	for _, name := range []string{replay.HeaderSource, replay.HeaderFailed, replay.HeaderStatus} {
		next.Header.Del(name)
	}
	return next
}

// startReplay records a replay, and sets the target of subsequent attempts to its destination.
func (c *routing) startReplay(asked *replay.Replay, from replay.Issuer, dest replay.Destination, req *http.Request) {
	s := &c.replay
	if s.replays == 0 {
		s.clientRequest = req
	}
	s.current, s.from, s.startedAt, s.original, s.criteria, s.cached = asked, from, time.Now(), req, c.criteria, false
	s.replays++
	s.until = time.Time{}
	if asked.Timeout > 0 {
		s.until = s.startedAt.Add(asked.Timeout)
	}
	c.follow(dest)
}

// withoutBackend returns a copy of the target without the machine with the given ID. If id is empty, it returns the
// target itself.
func withoutBackend(t *route.Target, id bourse.MachineID) *route.Target {
	if id == "" {
		return t
	}
	less := *t
	less.Fixed = true
	less.Backends = slices.DeleteFunc(slices.Clone(t.Backends), func(b route.Backend) bool { return b.Machine == id })
	return &less
}

// handleReplay returns the next request to send if a machine's reply requests a replay, or nil if the reply is meant
// for the client.
func (p *Proxy) handleReplay(x *exchange, req *http.Request, resp *http.Response) (*http.Request, error) {
	if p.Replays == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil
	}
	form := replay.FormOf(resp.Header)
	switch {
	case form == replay.None:
		return nil, nil
	case x.replay.fellBack:
		return nil, p.refuseReplay(x, http.StatusBadGateway, "the request was replayed again after it had fallen back from a replay", nil)
	case x.replay.replays >= replay.MaxReplays:
		return nil, p.refuseReplay(x, http.StatusLoopDetected, "the request was replayed too many times", nil)
	}
	var text []byte
	if form == replay.JSON {
		var err error
		if text, err = p.readReplay(resp); err != nil {
			return nil, err
		}
	}
	asked, err := replay.Parse(form, resp.Header, text)
	if err != nil {
		return nil, p.refuseReplay(x, http.StatusBadGateway, bourse.MessageOf(err), err)
	}
	if why := x.body.replayError(); why != nil {
		return nil, p.refuseReplay(x, http.StatusRequestEntityTooLarge, "the request cannot be replayed: "+bourse.MessageOf(why), why)
	}
	from := replay.Issuer{Target: x.target, Machine: x.latest.backend.Machine, Region: x.latest.backend.Region, Port: x.listener.Port}
	dest, err := replay.Plan(asked, from, p.Replays.Apps)
	p.cacheReplay(x, req, asked, err == nil)
	if err != nil {
		x.startReplay(asked, from, replay.Destination{Target: x.target}, req)
		if next := p.fallBackFor(x, replay.NoCandidate); next != nil {
			return next, nil
		}
		return nil, p.refuseReplay(x, http.StatusBadGateway, "the machine requested a replay to a destination without machines", err)
	}
	next := cloneRequest(req)
	next.Header.Set(replay.HeaderSource, replay.Source(from, time.Now(), asked.State))
	status := replay.Miss
	if x.replay.bypassed {
		status = replay.Bypass
	}
	next.Header.Set(replay.HeaderStatus, string(status))
	asked.Transform.Apply(next.URL, next.Header)
	x.startReplay(asked, from, dest, req)
	return next, nil
}

// readReplay reads the body of a reply that contains a replay.
func (p *Proxy) readReplay(resp *http.Response) ([]byte, error) {
	if held, ok := resp.Body.(*replyBody); ok {
		slow := time.AfterFunc(p.Limits.ResponseHeader, func() { _ = held.ReadCloser.Close() })
		defer slow.Stop()
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, replay.MaxBody+1))
	if err != nil {
		return nil, &statusError{status: http.StatusBadGateway, text: "the machine closed the connection in the middle of a replay", err: err}
	}
	return text, nil
}

// cacheReplay applies the cache rule of the replay asked, if it contains one. Only a request's first replay is cached,
// and only if its destination was found. A later replay can only invalidate the cached replays that apply to the
// client's request.
func (p *Proxy) cacheReplay(x *exchange, req *http.Request, asked *replay.Replay, found bool) {
	switch s := &x.replay; {
	case asked.Cache.Invalidate && s.replays > 0:
		p.cache.Invalidate(x.requested, s.clientRequest)
	case s.replays == 0 && (found || asked.Cache.Invalidate):
		if why := p.cache.Store(x.target, req, x.machine(), asked, time.Now()); why != "" {
			p.Log.Info("replay not cached", "request", x.id, "app", x.app(), "machine", x.machine(), "why", why)
		}
	}
}

// refuseReplay logs why a replay is refused, and returns an error for the client. The log also contains err, which
// may contain names that the client must not see.
func (p *Proxy) refuseReplay(x *exchange, status int, text string, err error) error {
	p.Log.Info("replay refused", "request", x.id, "app", x.app(), "machine", x.machine(), "text", text, "err", err)
	return &statusError{status: status, text: text, err: err}
}

// fallBack returns the request to send after a replay failed to reach a machine. If the failed replay came from the
// cache, the request goes to the app. Otherwise, if the replay has a fallback, the request goes to the machine that
// requested the replay. Without a fallback, fallBack returns nil.
func (p *Proxy) fallBack(x *exchange, t *attempt) *http.Request {
	s := &x.replay
	if s.current == nil || x.clientLeft() || t.sent || t.early || !x.body.replayable() {
		return nil
	}
	if s.cached {
		p.cache.Invalidate(x.requested, s.clientRequest)
		s.current, s.until = nil, time.Time{}
		x.setTarget(x.requested, s.criteria)
		return s.clientRequest
	}
	switch {
	case isTimeout(t.err):
		return p.fallBackFor(x, replay.TimedOut)
	case t.stage == stageChoose && x.failed == nil:
		return p.fallBackFor(x, replay.NoCandidate)
	}
	return p.fallBackFor(x, replay.Exhausted)
}

// fallBackFor sends the request back to the machine that requested the replay. It returns the original request with
// an additional header, which tells the machine why the replay failed. If the replay has no fallback, fallBackFor
// returns nil.
func (p *Proxy) fallBackFor(x *exchange, why replay.Reason) *http.Request {
	s := &x.replay
	dest, ok := replay.PlanFallback(s.current, s.from)
	if !ok {
		return nil
	}
	next := cloneRequest(s.original)
	next.Header.Set(replay.HeaderFailed, replay.Failed(s.current, s.from, why, time.Since(s.startedAt)))
	p.Log.Info("replay failed", slog.String("request", x.id), slog.String("app", x.app()), slog.String("machine", string(s.from.Machine)), slog.String("why", string(why)))
	s.fellBack, s.current, s.until = true, nil, time.Time{}
	x.follow(dest)
	return next
}
