package fabric

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Call is the method of [Fabric] by itself.
type Call func(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)

// AskAll is Ask for a Fabric that asks many by sending to each. When it returns,
// nothing that it sent is in progress.
func AskAll(ctx context.Context, send Send, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	body, err := EncodeOrder(order)
	if err != nil {
		return // an order that cannot be written down has no answers
	}
	m := QuoteMessage(body)
	var wg sync.WaitGroup
	var mu sync.Mutex // around answer
	one := func(to bourse.Member) {
		a, err := send(ctx, to, &m)
		if err != nil || a.Status > 299 || ctx.Err() != nil {
			return // missing, for any reason
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
			one(m) // this goroutine would only wait
			break
		}
		wg.Go(func() { one(m) })
	}
	wg.Wait()
}
