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
type onward struct {
	first   *http.Request // as the client sent it
	replays int           // 0: the request is where its client asked for it to be
	until   time.Time     // by when a machine must be reached; zero: the proxy's own limits

	asked    *replay.Replay // that the request is sent on by now; nil: by none
	from     replay.Issuer
	at       time.Time // when that was
	original *http.Request
	want     Want // before it
	hit      bool // it comes from the cache
	bypassed bool // its client asked not to use the cache
	fell     bool // the request fell back: it is not sent on again
}

// by returns the earlier of a limit of the proxy's and the replay's.
func (s *onward) by(limit time.Time) time.Time {
	if !s.until.IsZero() && s.until.Before(limit) {
		return s.until
	}
	return limit
}

// falls reports whether the request has somewhere else to go when no machine is
// reached.
func (s *onward) falls() bool {
	return s.asked != nil && (s.hit || s.asked.Fallback != replay.NoFallback)
}

func (s *onward) late() bool { return !s.until.IsZero() && !time.Now().Before(s.until) }

// recall sends a request to where an earlier one was replayed to, if that is known.
func (p *Proxy) recall(x *exchange, req *http.Request) *http.Request {
	if p.Replays == nil || x.want.Only || x.want.Force {
		return req
	}
	kept, status := p.cache.Lookup(x.target, req, x.began)
	x.onward.bypassed = status == replay.Bypass
	if status != replay.Hit {
		return req
	}
	from := replay.Issuer{Target: x.target, Machine: kept.From, Region: kept.Region, Port: x.listener.Port}
	way, err := replay.Plan(&kept.Replay, from, p.Replays.Apps)
	if err != nil {
		p.cache.Invalidate(x.target, req)
		return req
	}
	next := reheaded(req)
	next.Header.Set(replay.HeaderStatus, string(replay.Hit))
	x.sendOn(&kept.Replay, from, way, req)
	x.onward.hit = true
	return next
}

// reheaded returns a request with headers and a URL of its own: the attempt before
// may still be sending the others.
func reheaded(req *http.Request) *http.Request {
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
func (c *course) sendOn(asked *replay.Replay, from replay.Issuer, way replay.Way, req *http.Request) {
	s := &c.onward
	if s.replays == 0 {
		s.first = req
	}
	s.asked, s.from, s.at, s.original, s.want, s.hit = asked, from, time.Now(), req, c.want, false
	s.replays++
	s.until = time.Time{}
	if asked.Timeout > 0 {
		s.until = s.at.Add(asked.Timeout)
	}
	c.follow(way)
}

// without returns a target without one of its machines.
func without(t *route.Target, id bourse.MachineID) *route.Target {
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
func (p *Proxy) replayed(x *exchange, req *http.Request, resp *http.Response) (*http.Request, error) {
	if p.Replays == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil
	}
	form := replay.Asked(resp.Header)
	switch {
	case form == replay.None:
		return nil, nil
	case x.onward.fell:
		return nil, p.unreplayed(x, http.StatusBadGateway, "the request has fallen back from a replay, and is not replayed again", nil)
	case x.onward.replays >= replay.MaxReplays:
		return nil, p.unreplayed(x, http.StatusLoopDetected, "machines replayed the request to each other, too often", nil)
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
		return nil, p.unreplayed(x, http.StatusBadGateway, bourse.MessageOf(err), err)
	}
	if why := x.body.why(); why != nil {
		return nil, p.unreplayed(x, http.StatusRequestEntityTooLarge, "the request cannot be replayed: "+bourse.MessageOf(why), why)
	}
	from := replay.Issuer{Target: x.target, Machine: x.latest.to.Machine, Region: x.latest.to.Region, Port: x.listener.Port}
	way, err := replay.Plan(asked, from, p.Replays.Apps)
	p.remember(x, req, asked, err == nil)
	if err != nil {
		x.sendOn(asked, from, replay.Way{Target: x.target}, req)
		if next := p.fallTo(x, replay.NoCandidate); next != nil {
			return next, nil
		}
		return nil, p.unreplayed(x, http.StatusBadGateway, "the machine asked for a replay to where there is no machine", err)
	}
	next := reheaded(req)
	next.Header.Set(replay.HeaderSource, replay.Source(from, time.Now(), asked.State))
	status := replay.Miss
	if x.onward.bypassed {
		status = replay.Bypass
	}
	next.Header.Set(replay.HeaderStatus, string(status))
	asked.Transform.Apply(next.URL, next.Header)
	x.sendOn(asked, from, way, req)
	return next, nil
}

// readReplay reads the body of a reply that is a replay.
func (p *Proxy) readReplay(resp *http.Response) ([]byte, error) {
	if held, ok := resp.Body.(*replyBody); ok {
		slow := time.AfterFunc(p.Limits.Answer, func() { _ = held.ReadCloser.Close() })
		defer slow.Stop()
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, replay.MaxBody+1))
	if err != nil {
		return nil, &refusal{status: http.StatusBadGateway, text: "the machine broke off in the middle of a replay", err: err}
	}
	return text, nil
}

// remember keeps a replay of the app that the client asked, if it is one to keep.
// Any machine that the request came to may have it forgotten.
func (p *Proxy) remember(x *exchange, req *http.Request, asked *replay.Replay, found bool) {
	switch s := &x.onward; {
	case asked.Cache.Invalidate && s.replays > 0:
		p.cache.Invalidate(x.home, s.first)
	case s.replays == 0 && (found || asked.Cache.Invalidate):
		if why := p.cache.Store(x.target, req, x.machine(), asked, time.Now()); why != "" {
			p.Log.Info("replay not cached", "request", x.id, "app", x.app(), "machine", x.machine(), "why", why)
		}
	}
}

// unreplayed refuses a replay. Its author finds the reason in the log, with the
// names that the client is not told.
func (p *Proxy) unreplayed(x *exchange, status int, text string, err error) error {
	p.Log.Info("replay refused", "request", x.id, "app", x.app(), "machine", x.machine(), "text", text, "err", err)
	return &refusal{status: status, text: text, err: err}
}

// fallBack returns the request that is sent instead of one that reached no machine:
// to the app, if it came from the cache; to the machine that asked for the replay,
// if it asked for that.
func (p *Proxy) fallBack(x *exchange, t *try) *http.Request {
	s := &x.onward
	if s.asked == nil || x.gone() || t.sent || t.early || !x.body.again() {
		return nil
	}
	if s.hit {
		p.cache.Invalidate(x.home, s.first)
		s.asked, s.until = nil, time.Time{}
		x.begin(x.home, s.want)
		return s.first
	}
	switch {
	case timedOut(t.err):
		return p.fallTo(x, replay.TimedOut)
	case t.stage == choosing && x.last == nil:
		return p.fallTo(x, replay.NoCandidate)
	}
	return p.fallTo(x, replay.Exhausted)
}

// fallTo returns the request for the machine that asked for the replay, as that
// machine had it, with what went wrong; nil if it did not ask for it.
func (p *Proxy) fallTo(x *exchange, why replay.Reason) *http.Request {
	s := &x.onward
	way, ok := replay.PlanFallback(s.asked, s.from)
	if !ok {
		return nil
	}
	next := reheaded(s.original)
	next.Header.Set(replay.HeaderFailed, replay.Failed(s.asked, s.from, why, time.Since(s.at)))
	p.Log.Info("replay failed", slog.String("request", x.id), slog.String("app", x.app()), slog.String("machine", string(s.from.Machine)), slog.String("why", string(why)))
	s.fell, s.asked, s.until = true, nil, time.Time{}
	x.follow(way)
	return next
}
