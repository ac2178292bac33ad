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

// statusError is an error for which the client receives a specific HTTP status. A request that fails with a statusError
// is not retried.
type statusError struct {
	status int
	text   string
	err    error
}

// Error implements error.
func (r *statusError) Error() string { return r.text }

// Unwrap returns the cause, or nil.
func (r *statusError) Unwrap() error { return r.err }

// isTimeout reports whether err was caused by one of the proxy's own time limits. It returns false for timeouts that
// the kernel reports, because they mean that the other host is unreachable.
func isTimeout(err error) bool {
	if errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || bourse.CodeOf(err) == bourse.CodeTimeout
}

// describe returns the status and the text that the client receives for an error. The text does not contain
// addresses, names of other tenants, or the underlying cause, which is only logged.
func (x *exchange) describe(err error) (status int, text string) {
	if r, ok := errors.AsType[*statusError](err); ok {
		return r.status, r.text
	}
	e, coded := errors.AsType[*bourse.Error](err)
	switch {
	case x.clientLeft():
		return statusClientClosed, "the client disconnected"
	case coded && e.Code == bourse.CodeInvalid && x.attempts == 0:
		return http.StatusBadRequest, e.Message
	case coded && e.Code == bourse.CodeNotFound && x.requested == nil:
		return http.StatusNotFound, e.Message
	case isTimeout(err) && x.stage() == stageSend && x.latest.sent:
		return http.StatusGatewayTimeout, "the machine accepted the request but did not answer in time"
	case isTimeout(err) && x.stage() == stageUse:
		return http.StatusGatewayTimeout, "no machine was ready in time"
	case isTimeout(err) && x.stage() == stageChoose:
		return http.StatusServiceUnavailable, "all machines are at their limits, and none became free in time"
	case x.stage() == stageSend && !x.latest.sent:
		return http.StatusBadGateway, "could not connect to the machine"
	case x.stage() == stageSend:
		return http.StatusBadGateway, "the machine closed the connection before it answered"
	case coded && e.Code == bourse.CodeInsufficient:
		return http.StatusServiceUnavailable, "no machine could be started: its host is full"
	case coded && (e.Code == bourse.CodeUnavailable || e.Code == bourse.CodeRateLimited) && x.stage() != stageUse:
		return http.StatusServiceUnavailable, e.Message
	case coded && e.Code == bourse.CodeFailedPrecondition && x.stage() == stageUse:
		return http.StatusServiceUnavailable, "the app is not running: its program exited or could not be started"
	case x.stage() == stageUse:
		return http.StatusServiceUnavailable, "no machine could be started or reached"
	}
	return http.StatusBadGateway, "the request could not be forwarded"
}

// handleError implements httputil.ReverseProxy.ErrorHandler.
func (p *Proxy) handleError(_ http.ResponseWriter, r *http.Request, err error) {
	p.writeError(exchangeOf(r.Context()), err)
}

// errorBody is the JSON body of an error.
type errorBody struct {
	Error     string `json:"error"`
	RequestID string `json:"request_id"`
}

// writeError sends an error to the client, or aborts the connection if part of a reply has already been sent.
func (p *Proxy) writeError(x *exchange, err error) {
	x.err = err
	if x.out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	status, text := x.describe(err)
	if status == statusClientClosed {
		panic(http.ErrAbortHandler) // the client has disconnected
	}
	h := x.out.Header()
	clear(h)
	p.addProxyHeaders(&x.request, cmp.Or(x.target, x.requested), h)
	h.Set("Fly-Request-Id", x.id) // the proxy's own replies always have this header
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

// acceptsJSON reports whether the client accepts JSON but not HTML.
func acceptsJSON(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return strings.Contains(accept, "json") && !strings.Contains(accept, "text/html")
}

// fault identifies the party that is responsible for a failed attempt.
type fault string

// Faults.
const (
	// clientFault means that the client disconnected, sent its body too slowly, sent a malformed body, or lost its
	// connection before the machine had received the whole request.
	clientFault fault = "client"
	// proxyFault means that a limit of this proxy was reached, or that no machine was tried.
	proxyFault fault = "proxy"
	// machineFault means that the machine, its worker, or the network in between failed.
	machineFault fault = "machine"
)

// faultOf determines who is responsible for an attempt's error. The machine counts as failed if and only if faultOf
// returns machineFault.
func faultOf(r *request, t *attempt, err error) fault {
	switch _, refused := errors.AsType[*statusError](err); {
	case refused || t.stage == stageChoose || t.conn.wasEvicted():
		return proxyFault
	case r.clientLeft() || bourse.CodeOf(err) == bourse.CodeCanceled || r.body.clientFault() != nil:
		return clientFault
	case t.upstream != nil && isClosed(t.upstream):
		return machineFault
	case t.sent && !r.body.complete():
		return clientFault // the machine may have given up on a slow client
	}
	return machineFault
}

// backendError returns the error to report to the balancer for an attempt that ended with err. It is context.Canceled
// if the failure was not the machine's fault.
func backendError(r *request, t *attempt, err error) error {
	if err == nil || faultOf(r, t, err) == machineFault {
		return err
	}
	return context.Canceled
}
