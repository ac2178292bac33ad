package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// refusal is an error with a status of its own, after which nothing else is tried.
type statusError struct {
	status int
	text   string
	err    error
}

// Error returns the text.
func (r *statusError) Error() string { return r.text }

// Unwrap returns the cause.
func (r *statusError) Unwrap() error { return r.err }

// timedOut reports whether err is the end of some time of ours. The kernel's is not: it
// has lost the other host.
func isTimeout(err error) bool {
	if errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || bourse.CodeOf(err) == bourse.CodeTimeout
}

// sentence is what a client is told: a status, and a text that names no other
// tenant's things, no address and no cause that only the log should have.
func (x *exchange) describe(err error) (status int, text string) {
	if r, ok := errors.AsType[*statusError](err); ok {
		return r.status, r.text
	}
	e, coded := errors.AsType[*bourse.Error](err)
	switch {
	case x.clientLeft():
		return statusClientClosed, "the client left"
	case coded && e.Code == bourse.CodeInvalid && x.attempts == 0:
		return http.StatusBadRequest, e.Message
	case coded && e.Code == bourse.CodeNotFound && x.requested == nil:
		return http.StatusNotFound, e.Message
	case isTimeout(err) && x.stage() == stageSend && x.latest.sent:
		return http.StatusGatewayTimeout, "the machine accepted the request and did not answer in time"
	case isTimeout(err) && x.stage() == stageUse:
		return http.StatusGatewayTimeout, "no machine was ready in time"
	case isTimeout(err) && x.stage() == stageChoose:
		return http.StatusServiceUnavailable, "all machines are at their limits, and none became free in time"
	case x.stage() == stageSend && !x.latest.sent:
		return http.StatusBadGateway, "no connection to the machine could be made"
	case x.stage() == stageSend:
		return http.StatusBadGateway, "the machine broke off the connection before it answered"
	case coded && e.Code == bourse.CodeInsufficient:
		return http.StatusServiceUnavailable, "no machine could be started: its host is full"
	case coded && (e.Code == bourse.CodeUnavailable || e.Code == bourse.CodeRateLimited) && x.stage() != stageUse:
		return http.StatusServiceUnavailable, e.Message
	case coded && e.Code == bourse.CodeFailedPrecondition && x.stage() == stageUse:
		return http.StatusServiceUnavailable, "the app is not running: its program exited or could not be started"
	case x.stage() == stageUse:
		return http.StatusServiceUnavailable, "no machine could be made ready"
	}
	return http.StatusBadGateway, "the request could not be passed on"
}

// fail implements httputil.ReverseProxy.ErrorHandler.
func (p *Proxy) handleError(_ http.ResponseWriter, r *http.Request, err error) {
	p.writeError(exchangeOf(r.Context()), err)
}

// refusalBody is the JSON of a refusal.
type errorBody struct {
	Error     string `json:"error"`
	RequestID string `json:"request_id"`
}

// refuse answers with one sentence. A client that is in the middle of a reply is
// broken off instead.
func (p *Proxy) writeError(x *exchange, err error) {
	x.err = err
	if x.out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	status, text := x.describe(err)
	if status == statusClientClosed {
		panic(http.ErrAbortHandler) // nobody reads it, and the connection is of no use
	}
	h := x.out.Header()
	clear(h)
	p.addProxyHeaders(&x.request, cmp.Or(x.target, x.requested), h)
	h.Set("Fly-Request-Id", x.id) // of an answer that is ours it is said in any case
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	var body []byte
	if acceptsJSON(x.in.Header) {
		h.Set("Content-Type", "application/json")
		body, _ = json.Marshal(errorBody{text, x.id})
		body = append(body, '\n')
	} else {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		body = []byte(strconv.Itoa(status) + " " + http.StatusText(status) + ": " + text + "\nrequest id: " + x.id + "\n")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.out.WriteHeader(status)
	if x.in.Method != http.MethodHead {
		_, _ = x.out.Write(body)
	}
}

// acceptsJSON reports whether a client asks for JSON, and not for anything a person
// reads.
func acceptsJSON(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return strings.Contains(accept, "json") && !strings.Contains(accept, "text/html")
}

// fault says who is responsible for the failure of an attempt.
type fault string

// The faults.
const (
	// ofClient: the client left, its body is malformed or has not arrived, or the
	// connection broke before the machine had all of the request.
	clientFault fault = "client"
	// ofProxy: a limit of this proxy's, or no machine was tried at all.
	proxyFault fault = "proxy"
	// ofMachine: the machine, its worker, or the network in between.
	machineFault fault = "machine"
)

// faultOf classifies the error of an attempt. It is the only place that does: an
// attempt marks its machine as failed exactly if the fault is the machine's.
func faultOf(r *request, t *attempt, err error) fault {
	switch _, refused := errors.AsType[*statusError](err); {
	case refused || t.stage == stageChoose || t.conn.isShed():
		return proxyFault
	case r.clientLeft() || bourse.CodeOf(err) == bourse.CodeCanceled || r.body.clientFault() != nil:
		return clientFault
	case t.upstream != nil && isClosed(t.upstream):
		return machineFault
	case t.sent && !r.body.complete():
		return clientFault // a machine may give up on a client that is slow
	}
	return machineFault
}

// mark returns what the balancer is told about an attempt that ended with err:
// context.Canceled if that says nothing about the machine.
func backendError(r *request, t *attempt, err error) error {
	if err == nil || faultOf(r, t, err) == machineFault {
		return err
	}
	return context.Canceled
}
