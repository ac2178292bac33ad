package fabric

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Call is the signature of [Fabric].Call.
type Call func(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)

// AskAll implements Ask for a Fabric that sends each order separately. When it returns,
// none of its calls is in progress.
func AskAll(ctx context.Context, send Send, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	body, err := EncodeOrder(order)
	if err != nil {
		return // an order that cannot be encoded gets no answers
	}
	m := QuoteMessage(body)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards answer
	one := func(to bourse.Member) {
		a, err := send(ctx, to, &m)
		if err != nil || a.Status > 299 || ctx.Err() != nil {
			return // counts as missing, for any reason
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
			one(m) // this goroutine would otherwise only wait
			break
		}
		wg.Go(func() { one(m) })
	}
	wg.Wait()
}
