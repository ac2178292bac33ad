package broker

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// createReservation reserves capacity for all orders of the request. It replies with the holds, or with all refusals.
func (rs *reservationHandler) createReservation(w http.ResponseWriter, r *endpoint.Request) error {
	orders, err := rs.readReservation(w, r)
	if err != nil {
		return err
	}
	key := orders[0].Hold.Reservation
	w.Header().Set(machinesapi.HeaderOrderID, string(key))
	holds, decision, err := rs.Exchange.Reserve(r.Context(), orders)
	if err != nil {
		return reserveError(orders, &decision, err)
	}
	tags := make([]bourse.WorkerTag, len(holds))
	for i := range holds {
		tags[i] = holds[i].Tag
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromHolds(key.At(tags), holds))
}

// reserveError is like placeError, but also specifies which order was refused.
func reserveError(orders []bourse.Order, decision *bourse.Decision, err error) error {
	i := max(0, slices.IndexFunc(orders, func(o bourse.Order) bool { return o.ID == decision.Order }))
	out := placeError(&orders[i], decision, err)
	if e, ok := out.(*endpoint.Reply); ok && bourse.CodeOf(err) == bourse.CodeInsufficient { //nolint:errorlint // it was just created
		e.Text = cmp.Or(e.Text, bourse.MessageOf(err)) + "; nothing was reserved, because of orders[" + strconv.Itoa(orders[i].Hold.Index) + "]"
	}
	return out
}

// readReservation converts a request to one or more orders. Errors: invalid; not_found (an app);
// forbidden; unavailable if no worker is known.
func (rs *reservationHandler) readReservation(w http.ResponseWriter, r *endpoint.Request) ([]bourse.Order, error) {
	var in machinesapi.CreateReservation
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return nil, err
	}
	key, named, err := reservationKey(string(in.ID), r.Header.Get(machinesapi.HeaderOrderID))
	if err != nil {
		return nil, err
	}
	ttl := bourse.DefaultHold
	if in.TTLSeconds != nil {
		if ttl, err = holdTime(in.TTLSeconds); err != nil {
			return nil, err
		}
	}
	if len(in.Orders) == 0 || len(in.Orders) > bourse.MaxReservedOrders {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid number of orders %d: use 1 to %d", len(in.Orders), bourse.MaxReservedOrders)
	}
	var orders []bourse.Order
	for i := range in.Orders {
		order, count, err := rs.readHold(r, &in.Orders[i])
		if err != nil {
			return nil, orderError(i, err)
		}
		if len(orders)+count > bourse.MaxReservedOrders {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid orders: the counts exceed %d in total", bourse.MaxReservedOrders)
		}
		order.Options = bourse.Options{Timeout: in.Deadline, HasChosenID: named}
		order.Hold = &bourse.HoldOrder{Reservation: key, Index: i, TTL: bourse.Duration(ttl)}
		for range count {
			order.ID = key.Order(len(orders))
			orders = append(orders, order)
		}
		if err := order.Validate(); err != nil {
			return nil, orderError(i, err)
		}
	}
	key = key.In(orders[0].App.ID)
	for i := range orders {
		orders[i].ID, orders[i].Hold.Reservation = key.Order(i), key
	}
	return orders, nil
}

// readHold converts one entry of a request to an order without an ID. It also returns how many copies of the order the
// entry requests.
func (rs *reservationHandler) readHold(r *endpoint.Request, in *machinesapi.ReserveOrder) (order bourse.Order, count int, err error) {
	if in.Count != nil && (*in.Count < 1 || *in.Count > bourse.MaxReservedOrders) {
		return order, 0, bourse.Errorf(bourse.CodeInvalid, "invalid count %d: use 1 to %d", *in.Count, bourse.MaxReservedOrders)
	}
	count = 1
	if in.Count != nil {
		count = int(*in.Count)
	}
	if in.Config != nil {
		order.Config = *in.Config
	}
	if order.Config.Image != "" {
		order.Config.Image = machinesapi.ImageName(order.Config.Image)
	}
	if err := order.Config.NormalizeHeld(); err != nil {
		return order, 0, err
	}
	if _, err := workload.Review(&order.Config); err != nil { // do not reserve capacity for an invalid config
		return order, 0, err
	}
	if order.Regions, err = choices(rs.Directory, in.Region); err != nil {
		return order, 0, err
	}
	name := cmp.Or(in.App, bourse.DefaultAppName)
	if err := name.Validate(); err != nil {
		return order, 0, err
	}
	order.App, err = rs.gate.Usable(r, name)
	return order, count, err
}

// orderError adds an order's index to an error.
func orderError(i int, err error) error {
	return &bourse.Error{Code: bourse.CodeOf(err), Message: "orders[" + strconv.Itoa(i) + "]: " + bourse.MessageOf(err), Err: err}
}

// reservationKey returns the key that the client supplied in the body or the header, or a generated key if there is
// none. named reports whether the client supplied the key.
func reservationKey(body, header string) (key bourse.ReservationKey, named bool, err error) {
	if body != "" && header != "" && !strings.EqualFold(body, header) {
		return "", false, bourse.Errorf(bourse.CodeInvalid, "invalid id %s: header %s is %s", bourse.Quoted(body), machinesapi.HeaderOrderID, bourse.Quoted(header))
	}
	chosen := cmp.Or(body, header)
	if chosen == "" {
		return bourse.NewReservationKey(), false, nil
	}
	key = bourse.ReservationKey(strings.ToUpper(chosen)) // clients may write the key in lower case
	return key, true, key.Validate()
}

// holdTime decodes a request's TTL. The TTL is required.
func holdTime(seconds *int64) (time.Duration, error) {
	const most = int64(bourse.MaxHold / time.Second)
	if seconds == nil {
		return 0, bourse.Errorf(bourse.CodeInvalid, "ttl_seconds is required")
	}
	if *seconds < 1 || *seconds > most {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid ttl_seconds %d: use 1 to %d", *seconds, most)
	}
	return time.Duration(*seconds) * time.Second, nil
}
