package machinesapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Order returns how an order was decided. The broker that handled it knows all of
// it for a while; a filled one's ranking is kept with its machine. Codes:
// invalid, not_found.
func (c *Client) Order(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	return ask[bourse.Decision](ctx, c, call{method: http.MethodGet, path: path("orders", string(id))})
}

// Orders lists the orders that the broker decided lately, newest first, 100 at most,
// without their rounds: another broker's are not among them.
func (c *Client) Orders(ctx context.Context) ([]bourse.Decision, error) {
	return ask[[]bourse.Decision](ctx, c, call{method: http.MethodGet, path: path("orders")})
}

// OrderPull returns how far the pull has come that an order, which is being placed,
// waits for, by the id that its client chose. Codes: invalid, not_found (it waits for none, or
// another broker places it).
func (c *Client) OrderPull(ctx context.Context, app bourse.AppName, id bourse.OrderID) (PullLine, error) {
	return ask[PullLine](ctx, c, call{method: http.MethodGet, path: path("apps", string(app), "orders", string(id), "pull")})
}

// Reservations is capacity that is held, as a client reaches it.
type Reservations struct {
	Client *Client
}

// Reservations returns a client for reservations.
func (c *Client) Reservations() Reservations { return Reservations{c} }

// Create holds capacity for all orders or for none. Codes: invalid, not_found
// (an app), insufficient_capacity (the [ReplyError] has the refusals; nothing
// is held), timeout (with a ReplyError its deadline passed, and nothing is held;
// without one the answer was lost: repeat with the same id).
func (r Reservations) Create(ctx context.Context, in CreateReservation) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodPost, path: path("reservations"), in: in})
}

// List lists those of the apps that the token may use, and the workers that
// did not answer: what they hold is missing.
func (r Reservations) List(ctx context.Context) ([]Reservation, []bourse.WorkerID, error) {
	return list[[]Reservation](ctx, r.Client, call{method: http.MethodGet, path: path("reservations")})
}

// Get returns a reservation. Codes: invalid, not_found (it has ended, or never was).
func (r Reservations) Get(ctx context.Context, id bourse.ReservationID) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodGet, path: path("reservations", string(id))})
}

// Extend makes all that is held end so long from now. Codes:
// invalid, not_found (nothing is held), conflict (a worker holds its part no
// longer: nothing was extended).
func (r Reservations) Extend(ctx context.Context, id bourse.ReservationID, in ExtendReservation) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodPatch, path: path("reservations", string(id)), in: in})
}

// Release ends all that is held. It is idempotent. Codes: invalid,
// timeout (a worker has not confirmed it: what it holds ends by itself).
func (r Reservations) Release(ctx context.Context, id bourse.ReservationID) error {
	return r.Client.run(ctx, call{method: http.MethodDelete, path: path("reservations", string(id))})
}

// RunTask has work done and waits for its end. A non-empty order id makes a
// repetition get the first call's end. A task that its program did not answer
// is no error: see [TaskReply]. Codes: invalid, not_found (the app),
// insufficient_capacity (the [ReplyError] has the refusals and the order id),
// timeout (a worker may have begun it: repeat with the order id of the
// [ReplyError]).
func (c *Client) RunTask(ctx context.Context, app bourse.AppName, in RunTask, order bourse.OrderID) (TaskReply, error) {
	return ask[TaskReply](ctx, c, call{method: http.MethodPost, path: path("apps", string(app), "tasks"), header: header(HeaderOrderID, string(order)), in: in})
}

// StreamTask is [Client.RunTask] that calls a function with the answer's parts as they come,
// from the calling goroutine. The reply has the whole answer, too.
func (c *Client) StreamTask(ctx context.Context, app bourse.AppName, in RunTask, order bourse.OrderID, output func([]byte)) (TaskReply, error) {
	k := call{method: http.MethodPost, path: path("apps", string(app), "tasks"), header: header(HeaderOrderID, string(order)), in: in}
	k.header.Set("Accept", TypeLines)
	resp, err := c.stream(ctx, k)
	if err != nil {
		return TaskReply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	for l, err := range linesOf[TaskLine](resp.Body) {
		switch {
		case err != nil:
			return TaskReply{}, c.lost(ctx, k, err)
		case l.Result != nil:
			return *l.Result, nil
		case l.Error != nil:
			return TaskReply{}, &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error), Err: &ReplyError{
				Status: resp.StatusCode, RequestID: l.Error.RequestID, OrderID: l.Error.OrderID,
			}}
		case len(l.OutputBase64) > 0:
			output(l.OutputBase64)
		case l.Output != "":
			output([]byte(l.Output))
		}
	}
	return TaskReply{}, c.lost(ctx, k, fmt.Errorf("read the reply: %w", io.EOF))
}
