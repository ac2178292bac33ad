package fabric

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

var routeQuote = routeOf(PathQuote)

// maxQuote bounds a quote: it may hold a machine that filled the order before.
const maxQuote = MaxBody

// EncodeOrder writes an order down for many workers.
func EncodeOrder(order *bourse.Order) ([]byte, error) {
	body, err := codec.Marshal(order)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the order cannot be written: %w", err)
	}
	return body, nil
}

// QuoteRequest makes the request that puts an order, as EncodeOrder wrote it,
// to a worker.
func QuoteRequest(ctx context.Context, order []byte) (*http.Request, error) {
	req, err := routeQuote.request("", nil)
	if err != nil {
		return nil, err
	}
	setBytes(req, order)
	return req.WithContext(ctx), nil
}

// QuoteMessage is QuoteRequest for a [Messenger].
func QuoteMessage(order []byte) Message {
	return Message{Method: routeQuote.method, URI: routeQuote.before, Body: order}
}

// DecodeQuote reads the answer of a worker. One that is no quote of the worker
// that was asked is an error.
func DecodeQuote(from bourse.Member, body []byte) (bourse.Quote, error) {
	var q bourse.Quote
	if len(body) > maxQuote {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s gave a quote of %d bytes", from.ID, len(body))
	}
	if err := codec.Unmarshal(body, &q); err != nil {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s answered with what cannot be read: %w", from.ID, err)
	}
	return q, checkQuote(from, &q)
}

func checkQuote(from bourse.Member, q *bourse.Quote) error {
	if q.Worker != from.ID {
		return bourse.Errorf(bourse.CodeInternal, "worker %s gave a quote of %s", from.ID, bourse.Quoted(string(q.Worker)))
	}
	return q.Takes.Validate()
}

// AskOne puts an order, as EncodeOrder wrote it, to one worker by a request.
func AskOne(ctx context.Context, call Call, to bourse.Member, order []byte) (bourse.Quote, error) {
	var q bourse.Quote
	req, err := QuoteRequest(ctx, order)
	if err != nil {
		return q, err
	}
	resp, err := call(ctx, to, req)
	if err != nil {
		return q, err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		return q, readFailure(ctx, to, resp)
	}
	if err := readReply(ctx, to, resp, &q, maxQuote); err != nil {
		return q, err
	}
	return q, checkQuote(to, &q)
}
