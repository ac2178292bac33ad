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

// onward is where a request was sent on to, as machines asked with fly-replay.
type replayState struct {
	clientRequest *http.Request // as the client sent it
	replays       int           // 0: the request is where its client asked for it to be
	until         time.Time     // by when a machine must be reached; zero: the proxy's own limits

	current   *replay.Replay // that the request is sent on by now; nil: by none
	from      replay.Issuer
	startedAt time.Time // when that was
	original  *http.Request
	criteria  Criteria // before it
	cached    bool     // it comes from the cache
	bypassed  bool     // its client asked not to use the cache
	fellBack  bool     // the request fell back: it is not sent on again
}

// by returns the earlier of a limit of the proxy's and the replay's.
func (s *replayState) deadline(limit time.Time) time.Time {
	if !s.until.IsZero() && s.until.Before(limit) {
		return s.until
	}
	return limit
}

// falls reports whether the request has somewhere else to go when no machine is
// reached.
func (s *replayState) canFallBack() bool {
	return s.current != nil && (s.cached || s.current.Fallback != replay.NoFallback)
}

func (s *replayState) expired() bool { return !s.until.IsZero() && !time.Now().Before(s.until) }

// recall sends a request to where an earlier one was replayed to, if that is known.
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
	way, err := replay.Plan(&kept.Replay, from, p.Replays.Apps)
	if err != nil {
		p.cache.Invalidate(x.target, req)
		return req
	}
	next := cloneRequest(req)
	next.Header.Set(replay.HeaderStatus, string(replay.Hit))
	x.startReplay(&kept.Replay, from, way, req)
	x.replay.cached = true
	return next
}

// reheaded returns a request with headers and a URL of its own: the attempt before
// may still be sending the others.
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

// sendOn has the next attempts go another way.
func (c *routing) startReplay(asked *replay.Replay, from replay.Issuer, way replay.Destination, req *http.Request) {
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
	c.follow(way)
}

// without returns a target without one of its machines.
func withoutBackend(t *route.Target, id bourse.MachineID) *route.Target {
	if id == "" {
		return t
	}
	less := *t
	less.Fixed = true
	less.Backends = slices.DeleteFunc(slices.Clone(t.Backends), func(b route.Backend) bool { return b.Machine == id })
	return &less
}

// replayed returns the request that a machine's reply asks to be sent on, nil when
// the reply is for the client.
func (p *Proxy) handleReplay(x *exchange, req *http.Request, resp *http.Response) (*http.Request, error) {
	if p.Replays == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil
	}
	form := replay.FormOf(resp.Header)
	switch {
	case form == replay.None:
		return nil, nil
	case x.replay.fellBack:
		return nil, p.refuseReplay(x, http.StatusBadGateway, "the request has fallen back from a replay, and is not replayed again", nil)
	case x.replay.replays >= replay.MaxReplays:
		return nil, p.refuseReplay(x, http.StatusLoopDetected, "machines replayed the request to each other, too often", nil)
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
	way, err := replay.Plan(asked, from, p.Replays.Apps)
	p.cacheReplay(x, req, asked, err == nil)
	if err != nil {
		x.startReplay(asked, from, replay.Destination{Target: x.target}, req)
		if next := p.fallBackFor(x, replay.NoCandidate); next != nil {
			return next, nil
		}
		return nil, p.refuseReplay(x, http.StatusBadGateway, "the machine asked for a replay to where there is no machine", err)
	}
	next := cloneRequest(req)
	next.Header.Set(replay.HeaderSource, replay.Source(from, time.Now(), asked.State))
	status := replay.Miss
	if x.replay.bypassed {
		status = replay.Bypass
	}
	next.Header.Set(replay.HeaderStatus, string(status))
	asked.Transform.Apply(next.URL, next.Header)
	x.startReplay(asked, from, way, req)
	return next, nil
}

// readReplay reads the body of a reply that is a replay.
func (p *Proxy) readReplay(resp *http.Response) ([]byte, error) {
	if held, ok := resp.Body.(*replyBody); ok {
		slow := time.AfterFunc(p.Limits.ResponseHeader, func() { _ = held.ReadCloser.Close() })
		defer slow.Stop()
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, replay.MaxBody+1))
	if err != nil {
		return nil, &statusError{status: http.StatusBadGateway, text: "the machine broke off in the middle of a replay", err: err}
	}
	return text, nil
}

// remember keeps a replay of the app that the client asked, if it is one to keep.
// Any machine that the request came to may have it forgotten.
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

// unreplayed refuses a replay. Its author finds the reason in the log, with the
// names that the client is not told.
func (p *Proxy) refuseReplay(x *exchange, status int, text string, err error) error {
	p.Log.Info("replay refused", "request", x.id, "app", x.app(), "machine", x.machine(), "text", text, "err", err)
	return &statusError{status: status, text: text, err: err}
}

// fallBack returns the request that is sent instead of one that reached no machine:
// to the app, if it came from the cache; to the machine that asked for the replay,
// if it asked for that.
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

// fallTo returns the request for the machine that asked for the replay, as that
// machine had it, with what went wrong; nil if it did not ask for it.
func (p *Proxy) fallBackFor(x *exchange, why replay.Reason) *http.Request {
	s := &x.replay
	way, ok := replay.PlanFallback(s.current, s.from)
	if !ok {
		return nil
	}
	next := cloneRequest(s.original)
	next.Header.Set(replay.HeaderFailed, replay.Failed(s.current, s.from, why, time.Since(s.startedAt)))
	p.Log.Info("replay failed", slog.String("request", x.id), slog.String("app", x.app()), slog.String("machine", string(s.from.Machine)), slog.String("why", string(why)))
	s.fellBack, s.current, s.until = true, nil, time.Time{}
	x.follow(way)
	return next
}
