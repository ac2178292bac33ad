package fabric

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// maxQuote is the maximum size of a quote, in bytes. It must leave room for a whole machine, which the quote contains
// if the worker has already filled the order.
const maxQuote = MaxBody

// EncodeOrder encodes an order once, so that it can be sent to many workers.
func EncodeOrder(order *bourse.Order) ([]byte, error) {
	body, err := codec.Marshal(order)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode the order: %w", err)
	}
	return body, nil
}

// QuoteMessage returns a request for a quote. The order must have been encoded by EncodeOrder.
func QuoteMessage(order []byte) Message {
	return Message{Method: OrderQuote.Method, URI: OrderQuote.Path(), Body: order}
}

// DecodeQuote decodes a worker's answer. It returns an error if the answer is not a quote
// from this worker.
func DecodeQuote(from bourse.Member, body []byte) (bourse.Quote, error) {
	var q bourse.Quote
	if len(body) > maxQuote {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s sent a quote of %d bytes", from.ID, len(body))
	}
	if err := codec.Unmarshal(body, &q); err != nil {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s sent an invalid quote: %w", from.ID, err)
	}
	return q, checkQuote(from, &q)
}

func checkQuote(from bourse.Member, q *bourse.Quote) error {
	if q.Worker != from.ID {
		return bourse.Errorf(bourse.CodeInternal, "worker %s sent a quote on behalf of worker %s", from.ID, bourse.Quoted(string(q.Worker)))
	}
	return q.Takes.Validate()
}
