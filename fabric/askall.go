package fabric

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Call is the method of [Fabric] by itself.
type Call func(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)

// AskAll is Ask for a Fabric that can only ask many by calling each. When
// it returns, all of its calls have ended.
func AskAll(ctx context.Context, call Call, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	body, err := EncodeOrder(order)
	if err != nil {
		return // an order that cannot be written down has no answers
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // around answer
	one := func(m bourse.Member) {
		q, err := AskOne(ctx, call, m, body)
		if err != nil || ctx.Err() != nil {
			return // missing, for any reason
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
