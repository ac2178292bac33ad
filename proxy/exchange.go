package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
)

// exchange is one request and its reply. It belongs to the request's goroutine.
type exchange struct {
	request
	routing
	outcome
}

// request is what a client asks. Once attempts begin it is only read.
type request struct {
	id        string
	began     time.Time
	listener  Listener
	in        *http.Request
	client    client
	requested *route.Target // what it asked for; nil: not known, or there is none
	body      *body         // nil: none
}

// course is where the request goes next. An attempt follows it, and what comes of the
// attempt changes it: the failure of a machine, a replay, a new machine that was ordered.
type routing struct {
	target        *route.Target
	criteria      Criteria
	tries         int       // at this target; those that only waited for a worker have a bound of their own
	readyDeadline time.Time // when machines must be ready; zero: none was asked yet
	failed        *attempt  // that failed before this one; nil: none at this target
	pause         time.Duration
	ordered       bool        // another machine was ordered for the request
	replay        replayState // on, as machines ask
}

// outcome is what became of the request so far, for the client, the log, the counts
// and the trace.
type outcome struct {
	out      *response
	attempts int
	latest   *attempt      // whose failure is the request's; nil: there was no attempt
	waited   time.Duration // for a place at a machine
	used     time.Duration // for it to be ready
	reply    io.Closer     // of a machine that has replied: ends the attempt
	upgraded *upgradedConn // both ways, after a change of protocols
	err      error         // why there was no reply
	span     trace.Span
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// app returns the name of the app that is asked for, for logs and counts.
func (r *request) app() string {
	if r.requested == nil {
		return ""
	}
	return string(r.requested.App.Name)
}

// secure reports whether the client's connection is encrypted, as far as we know.
func (r *request) secure() bool { return r.client.proto == "https" }

// gone reports whether the client left.
func (r *request) clientLeft() bool { return errors.Is(r.in.Context().Err(), context.Canceled) }

// begin has the next attempts go to a target's machines, as if none had been made.
func (c *routing) setTarget(t *route.Target, want Criteria) {
	c.target, c.criteria = t, want
	c.tries, c.failed, c.readyDeadline = 0, nil, time.Time{}
}

// follow begins with attempts at a way's machines.
func (c *routing) follow(way replay.Destination) {
	want := Criteria{Instance: way.Prefer, Force: len(way.Regions) > 0}
	if way.Instance != "" {
		want.Instance, want.Only = way.Instance, true
	}
	for _, regions := range way.Regions {
		want.Regions = append(want.Regions, regions)
	}
	c.setTarget(withoutBackend(way.Target, way.Avoid), want)
}

// stage returns how far the latest attempt came.
func (o *outcome) stage() stage {
	if o.latest == nil {
		return ""
	}
	return o.latest.stage
}

// machine returns the machine of the latest attempt, "" if it came to none.
func (o *outcome) machine() bourse.MachineID {
	if o.latest == nil {
		return ""
	}
	return o.latest.backend.Machine
}

// code returns the status that the client got: 499 if it left before there was
// one, as nginx logs it.
func (o *outcome) code() int {
	switch {
	case o.out.status != 0:
		return o.out.status
	case o.upgraded != nil:
		return http.StatusSwitchingProtocols
	}
	return statusClientClosed
}
