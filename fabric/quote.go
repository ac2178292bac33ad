package fabric

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

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

// QuoteMessage makes the request that puts an order, as EncodeOrder wrote it,
// to a worker.
func QuoteMessage(order []byte) Message {
	return Message{Method: OrderQuote.Method, URI: OrderQuote.Path(), Body: order}
}

// DecodeQuote reads the answer of a worker. One that is no quote of the worker
// that was asked is an error.
func DecodeQuote(from bourse.Member, body []byte) (bourse.Quote, error) {
	var q bourse.Quote
	if len(body) > maxQuote {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s sent a quote of %d bytes", from.ID, len(body))
	}
	if err := codec.Unmarshal(body, &q); err != nil {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s answered with what cannot be read: %w", from.ID, err)
	}
	return q, checkQuote(from, &q)
}

func checkQuote(from bourse.Member, q *bourse.Quote) error {
	if q.Worker != from.ID {
		return bourse.Errorf(bourse.CodeInternal, "worker %s sent a quote of %s", from.ID, bourse.Quoted(string(q.Worker)))
	}
	return q.Takes.Validate()
}
