package fabric

import (
	"context"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

var routeQuote = routeOf(PathQuote)

// maxQuote bounds a quote: it may hold a machine that filled the order before.
const maxQuote = MaxBody

// asking is an order, written down once, that is put to many workers.
type asking struct{ body []byte }

func newAsking(order *bourse.Order) (*asking, error) {
	body, err := json.Marshal(order)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the order cannot be written as JSON: %w", err)
	}
	return &asking{body: body}, nil
}

// put asks one worker. An answer that is no quote of the worker that was
// asked is an error.
func (a *asking) put(ctx context.Context, call Call, to bourse.Member) (bourse.Quote, error) {
	var q bourse.Quote
	req, err := routeQuote.request("", nil)
	if err != nil {
		return q, err
	}
	setBytes(req, a.body)
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
	if q.Worker != to.ID {
		return q, bourse.Errorf(bourse.CodeInternal, "worker %s gave a quote of %s", to.ID, bourse.Quoted(string(q.Worker)))
	}
	return q, q.Takes.Validate()
}
