package machinesapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Order returns the decision about an order. Only the broker that handled the order keeps the complete decision, and
// only temporarily. A filled order's ranking is also stored with its machine. Errors: invalid, not_found.
func (c *Client) Order(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	return ask[bourse.Decision](ctx, c, call{method: http.MethodGet, path: path("orders", string(id))})
}

// Orders lists the orders that this broker recently decided, newest first, without the details of their rounds. It
// returns at most 100 orders. Orders decided by other brokers are not included.
func (c *Client) Orders(ctx context.Context) ([]bourse.Decision, error) {
	return ask[[]bourse.Decision](ctx, c, call{method: http.MethodGet, path: path("orders")})
}

// OrderPull returns the progress of the image pull that an order is waiting for. id is the order ID chosen by the
// client. Errors: invalid, not_found (the order is not waiting for a pull, or another broker handles it).
func (c *Client) OrderPull(ctx context.Context, app bourse.AppName, id bourse.OrderID) (PullLine, error) {
	return ask[PullLine](ctx, c, call{method: http.MethodGet, path: path("apps", string(app), "orders", string(id), "pull")})
}

// Reservations is a client for reservations.
type Reservations struct {
	Client *Client
}

// Reservations returns a client for reservations.
func (c *Client) Reservations() Reservations { return Reservations{c} }

// Create reserves capacity for all orders or for none. Errors: invalid, not_found (an app), insufficient_capacity
// (nothing is reserved; the [ReplyError] contains the refusals), timeout. A timeout with a ReplyError means that the
// deadline has passed and nothing is reserved. A timeout without a ReplyError means that the reply was lost: repeat the
// call with the same ID.
func (r Reservations) Create(ctx context.Context, in CreateReservation) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodPost, path: path("reservations"), in: in})
}

// List lists the reservations of the apps that the token may use. It also returns the workers that did not answer. The
// listed reservations do not contain the holds on these workers.
func (r Reservations) List(ctx context.Context) ([]Reservation, []bourse.WorkerID, error) {
	return list[[]Reservation](ctx, r.Client, call{method: http.MethodGet, path: path("reservations")})
}

// Get returns a reservation. Errors: invalid, not_found (the reservation has ended or never
// existed).
func (r Reservations) Get(ctx context.Context, id bourse.ReservationID) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodGet, path: path("reservations", string(id))})
}

// Extend sets the expiry of all holds of a reservation to the given TTL from now. Errors: invalid,
// not_found (no worker holds capacity for the reservation), conflict (a worker no longer has its
// hold, and nothing was extended).
func (r Reservations) Extend(ctx context.Context, id bourse.ReservationID, in ExtendReservation) (Reservation, error) {
	return ask[Reservation](ctx, r.Client, call{method: http.MethodPatch, path: path("reservations", string(id)), in: in})
}

// Release releases all holds of a reservation. It is idempotent. Errors: invalid, timeout (a worker
// has not confirmed the release; its hold expires automatically).
func (r Reservations) Release(ctx context.Context, id bourse.ReservationID) error {
	return r.Client.run(ctx, call{method: http.MethodDelete, path: path("reservations", string(id))})
}

// RunTask runs a task and waits until it ends. If order is not empty, calling RunTask again with
// the same order returns the result of the first call. If the task fails, RunTask does not return
// an error; see [TaskReply]. Errors: invalid, not_found (the app), insufficient_capacity (the
// [ReplyError] contains the refusals and the order ID), timeout (a worker may have started the
// task: repeat the call with the order ID in the [ReplyError]).
func (c *Client) RunTask(ctx context.Context, app bourse.AppName, in RunTask, order bourse.OrderID) (TaskReply, error) {
	return ask[TaskReply](ctx, c, call{method: http.MethodPost, path: path("apps", string(app), "tasks"), header: header(HeaderOrderID, string(order)), in: in})
}

// StreamTask is like [Client.RunTask], but also calls output, from the calling goroutine, with each part of the answer
// as it arrives. The reply also contains the whole answer.
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
			return TaskReply{}, c.noReply(ctx, k, err)
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
	return TaskReply{}, c.noReply(ctx, k, fmt.Errorf("read the reply: %w", io.EOF))
}
