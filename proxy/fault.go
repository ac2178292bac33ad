package proxy

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
)

// fault says who is responsible for the failure of an attempt.
type fault string

// The faults.
const (
	// ofClient: the client left, its body is malformed or has not arrived, or the
	// connection broke before the machine had all of the request.
	ofClient fault = "client"
	// ofProxy: a limit of this proxy's, or no machine was tried at all.
	ofProxy fault = "proxy"
	// ofMachine: the machine, its worker, or the network in between.
	ofMachine fault = "machine"
)

// faultOf classifies the error of an attempt. It is the only place that does: an
// attempt marks its machine as failed exactly if the fault is the machine's.
func faultOf(r *request, t *try, err error) fault {
	switch _, refused := errors.AsType[*refusal](err); {
	case refused || t.stage == choosing || t.conn.isShed():
		return ofProxy
	case r.gone() || bourse.CodeOf(err) == bourse.CodeCanceled || r.body.fault() != nil:
		return ofClient
	case t.way != nil && over(t.way):
		return ofMachine
	case t.sent && !r.body.whole():
		return ofClient // a machine may give up on a client that is slow
	}
	return ofMachine
}

// mark returns what the balancer is told about an attempt that ended with err:
// context.Canceled if that says nothing about the machine.
func mark(r *request, t *try, err error) error {
	if err == nil || faultOf(r, t, err) == ofMachine {
		return err
	}
	return context.Canceled
}
