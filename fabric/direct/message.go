package direct

import (
	"context"
	"errors"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/mux"
)

// limits contains the size limits of calls. Larger messages are sent as separate requests, because they would delay
// other calls.
var limits = mux.Limits{Word: 2 << 10, Payload: 256 << 10, Answer: fabric.MaxAnswer}

// Send implements [fabric.Fabric]. It sends the request as a call or, if it is too large for that, as a separate
// request.
func (f *Fabric) Send(ctx context.Context, to bourse.Member, m *fabric.Message) (fabric.Answer, error) {
	if len(m.Body) > limits.Payload || len(m.URI) > limits.Word {
		return fabric.SendByCall(ctx, f.Call, to, m)
	}
	call := mux.Call{Subject: m.URI, Type: m.Method, Payload: m.Body}
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return fabric.Answer{}, fabric.Unsent(to, err)
		}
		conn, err := f.conns.get(ctx, &to)
		if r, ok := errors.AsType[*refused](err); ok {
			return r.answer, nil
		}
		if err != nil {
			return fabric.Answer{}, fabric.Unsent(to, err)
		}
		a, err := conn.Call(ctx, &call)
		switch _, unsent := errors.AsType[mux.NotSent](err); {
		case err == nil && a.Status == http.StatusMisdirectedRequest:
			return fabric.Answer{}, fabric.Unsent(to, errWrongServer)
		case err == nil:
			return fabric.Answer{Status: a.Status, Body: a.Body}, nil
		case first && errors.Is(err, mux.ErrEnded):
		case unsent:
			return fabric.Answer{}, fabric.Unsent(to, err)
		default:
			return fabric.Answer{}, fabric.Lost(ctx, to, err)
		}
	}
}

// Ask implements [fabric.Fabric].
func (f *Fabric) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	fabric.AskAll(ctx, f.Send, to, order, answer)
}
