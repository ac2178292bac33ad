package fabric

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Call is the signature of [Fabric].Call.
type Call func(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)

// AskAll implements Ask for a Fabric by sending the order to each worker in a separate call. It
// returns once all of these calls have ended.
func AskAll(ctx context.Context, send Send, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	body, err := EncodeOrder(order)
	if err != nil {
		return // no quotes for an order that cannot be encoded
	}
	m := QuoteMessage(body)
	var wg sync.WaitGroup
	var mu sync.Mutex // serializes calls to answer
	one := func(to bourse.Member) {
		a, err := send(ctx, to, &m)
		if err != nil || a.Status > 299 || ctx.Err() != nil {
			return // a failed call counts as no answer
		}
		q, err := DecodeQuote(to, a.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		answer(q)
	}
	for i, m := range to {
		if i == len(to)-1 {
			one(m) // the last call runs in this goroutine, which would otherwise only wait
			break
		}
		wg.Go(func() { one(m) })
	}
	wg.Wait()
}
