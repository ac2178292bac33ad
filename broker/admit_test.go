package broker_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
)

// stuck is an exchange that fills no order until the test releases it.
type stuck struct {
	broker.Exchange
	begun chan bourse.OrderID
	free  chan struct{}
}

func (s stuck) Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	s.begun <- order.ID
	<-s.free
	return s.Exchange.Place(ctx, order)
}

// TestTooManyOrders checks that a broker with the maximum number of orders in progress refuses every further order of
// any kind with 429 and Retry-After, without making a decision. Reads and operations continue to work, and orders are
// accepted again once the earlier ones have ended.
func TestTooManyOrders(t *testing.T) {
	ex := stuck{begun: make(chan bourse.OrderID, 10), free: make(chan struct{})}
	s := start(t, func(c *broker.Config) {
		ex.Exchange = c.Exchange
		c.Exchange = ex
		c.Orders = throttle.OrderLimits{Concurrency: 2, InProgress: 2}
	})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"gru"}`); rec.Code != http.StatusOK {
				t.Errorf("order within the limit: status %d: %s", rec.Code, rec.Body)
			}
		})
		<-ex.begun
	}
	for path, body := range map[string]string{
		createPath:                 `{"config":` + hostConfig + `,"region":"gru"}`,
		"/v1/apps/default/quotes":  `{"config":` + hostConfig + `,"region":"gru"}`,
		"/v1/apps/default/tasks":   `{"task":"increment","payload":1}`,
		"/v1/apps/default/volumes": `{"name":"data","region":"gru"}`,
		"/schedule":                `{"Task":"increment"}`,
		"/v1/reservations":         `{"orders":[{"region":"gru"}]}`,
	} {
		rec := s.call(t, "POST", path, body)
		if rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") == "" {
			t.Errorf("POST %s: status %d, Retry-After %q, want 429 and 1: %s", path, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
		}
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); got.Code != bourse.CodeRateLimited {
			t.Errorf("POST %s: code %s, want %s", path, got.Code, bourse.CodeRateLimited)
		}
	}
	if rec := s.call(t, "GET", createPath, ""); rec.Code != http.StatusOK {
		t.Errorf("list while the broker is full: status %d", rec.Code)
	}
	close(ex.free)
	wg.Wait()
	if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"gru"}`); rec.Code != http.StatusOK {
		t.Errorf("afterwards: status %d: %s", rec.Code, rec.Body)
	}
}
