package direct

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// callsPath and callsProtocol are what a connection of calls begins with: a
// request that asks to go on in frames.
const (
	callsPath     = "/worker/calls"
	callsProtocol = "bourse-calls"
)

// open dials a worker and asks it to take calls. errNoCalls means that it is
// there and does not, errNoAnswer that it does not answer.
func (ls *lines) open(ctx context.Context, to *bourse.Member, ended func()) (*line, *bufio.Reader, error) {
	c, err := ls.dial(ctx, "tcp", to.Address)
	if err != nil {
		return nil, nil, err
	}
	below := newNowait(c)
	var conn net.Conn = below
	if ls.config != nil {
		if conn, err = secured(ctx, below, ls.config, serverName(*to), "http/1.1"); err != nil {
			return nil, nil, err
		}
	}
	l := newLine(conn, below, &ls.work, ended)
	r, err := l.upgrade(ctx, to, ls.proof)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	below.waiting = false
	return l, r, nil
}

// upgrade asks a worker to go on in frames.
func (l *line) upgrade(ctx context.Context, to *bourse.Member, proof admission.Proof) (*bufio.Reader, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ask := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: callsPath}, Host: to.Address, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {callsProtocol}, headerTo: {string(to.ID)}, "User-Agent": nil},
	}
	proof.ShowTo(ask.Header, to.Address)
	if err := ask.Write(l.conn); err != nil {
		return nil, unanswered(ctx, err)
	}
	within := &io.LimitedReader{R: l, N: maxHeader}
	r := bufio.NewReaderSize(within, readAhead)
	answer, err := http.ReadResponse(r, ask) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	within.N = math.MaxInt64
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols && answer.Header.Get("Upgrade") == callsProtocol:
		if !stop() {
			return nil, ctx.Err() // its deadline is set, or soon will be
		}
		return r, nil
	case answer.StatusCode == http.StatusMisdirectedRequest:
		return nil, errAnother
	case answer.StatusCode == http.StatusServiceUnavailable:
		return nil, errClosing
	}
	return nil, errNoCalls
}

// unanswered is the error of a worker that did not answer. One that is silent for long
// takes no calls: a proxy in between may swallow what it does not know.
func unanswered(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.Join(errNoCalls, err)
	}
	return errors.Join(errNoAnswer, err)
}
