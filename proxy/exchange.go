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

// exchange is a request together with its reply. Only the request's own goroutine uses it.
type exchange struct {
	request
	routing
	outcome
}

// request is the client's request. It does not change once the first attempt has begun.
type request struct {
	id        string
	began     time.Time
	listener  Listener
	in        *http.Request
	client    client
	requested *route.Target // the target that the client requested; nil: none was found
	body      *body         // nil: the request has no body
}

// routing determines where the next attempt is sent. It changes when an attempt fails, when the
// request is replayed, and when a machine is ordered.
type routing struct {
	target        *route.Target
	criteria      Criteria
	tries         int       // number of attempts at this target, except those that only waited for a worker
	readyDeadline time.Time // when machines must be ready; zero: not set yet
	failed        *attempt  // the previous attempt at this target, which failed; nil: none
	pause         time.Duration
	ordered       bool // a machine on another host was ordered for this request
	replay        replayState
}

// outcome contains the results of the attempts. They are used for the reply to the client, the
// access log, metrics and traces.
type outcome struct {
	out      *response
	attempts int
	latest   *attempt      // the attempt whose result is reported; nil: there was no attempt
	waited   time.Duration // time spent waiting for a slot
	used     time.Duration // time spent waiting for machines to become ready
	reply    io.Closer     // body of the machine's reply; closing it ends the attempt
	upgraded *upgradedConn // connection to the machine after a protocol upgrade
	err      error         // why no reply was sent
	span     trace.Span
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// app returns the name of the requested app, for logs and metrics.
func (r *request) app() string {
	if r.requested == nil {
		return ""
	}
	return string(r.requested.App.Name)
}

// secure reports whether the client's connection is encrypted, as far as the proxy knows.
func (r *request) secure() bool { return r.client.proto == "https" }

// clientLeft reports whether the client has disconnected.
func (r *request) clientLeft() bool { return errors.Is(r.in.Context().Err(), context.Canceled) }

// setTarget sets the target of subsequent attempts, and discards the state of earlier attempts.
func (c *routing) setTarget(t *route.Target, want Criteria) {
	c.target, c.criteria = t, want
	c.tries, c.failed, c.readyDeadline = 0, nil, time.Time{}
}

// noResponse adds to the time that the request has spent waiting for an unresponsive worker.
func (c *routing) noResponse(from bourse.WorkerID, waited time.Duration) {
	if c.criteria.Unresponsive == nil {
		c.criteria.Unresponsive = map[bourse.WorkerID]time.Duration{}
	}
	c.criteria.Unresponsive[from] += waited
}

// follow sets the target of subsequent attempts to the destination of a replay.
func (c *routing) follow(dest replay.Destination) {
	want := Criteria{Instance: dest.Prefer, Force: len(dest.Regions) > 0}
	if dest.Instance != "" {
		want.Instance, want.Only = dest.Instance, true
	}
	for _, regions := range dest.Regions {
		want.Regions = append(want.Regions, regions)
	}
	c.setTarget(withoutBackend(dest.Target, dest.Avoid), want)
}

// stage returns the stage that the latest attempt has reached, or "" if there was no attempt.
func (o *outcome) stage() stage {
	if o.latest == nil {
		return ""
	}
	return o.latest.stage
}

// machine returns the machine of the latest attempt, or "" if no machine was chosen.
func (o *outcome) machine() bourse.MachineID {
	if o.latest == nil {
		return ""
	}
	return o.latest.backend.Machine
}

// code returns the status that was sent to the client. If the client disconnected before a status was sent, it returns
// 499, as nginx does.
func (o *outcome) code() int {
	switch {
	case o.out.status != 0:
		return o.out.status
	case o.upgraded != nil:
		return http.StatusSwitchingProtocols
	}
	return statusClientClosed
}
