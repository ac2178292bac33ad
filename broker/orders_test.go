package broker_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestDecisionOfAFilledOrderIsOnItsWorker(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"mad"}`)
	id := rec.Header().Get("Bourse-Order-Id")
	rec = s.call(t, "GET", "/v1/orders/"+strings.ToLower(id), "")
	got := decodeBody[bourse.Decision](t, rec.Body.Bytes())
	if rec.Code != 200 || got.Order != bourse.OrderID(id) || got.Worker != "w3" || got.Outcome != bourse.OutcomeFilled {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
	t.Run("even if other workers do not answer", func(t *testing.T) {
		s.workers["w1"].silence(errDown)
		if rec := s.call(t, "GET", "/v1/orders/"+id, ""); rec.Code != 200 {
			t.Errorf("status %d", rec.Code)
		}
	})
	t.Run("unavailable if the worker does not answer", func(t *testing.T) {
		s.workers["w3"].silence(errDown)
		if rec := s.call(t, "GET", "/v1/orders/"+id, ""); rec.Code != 503 {
			t.Errorf("status %d", rec.Code)
		}
	})
}

// TestPullOfAnOrderRequiresItsApp checks that a caller can see the progress of an order's image
// pull only if it may use the order's app.
func TestPullOfAnOrderRequiresItsApp(t *testing.T) {
	s := start(t)
	const chosen = "01JD3V7K7Y5C5ZQ7W1R2M3N4P6"
	at := s.workers["w3"].self
	shop := s.app(t, "shop", "acme")
	s.app(t, "other", "acme")
	s.claiming = map[bourse.OrderID]bourse.Member{bourse.OrderID(chosen).In(shop.ID): at}
	for app, want := range map[string]int{"shop": 200, "other": 404} {
		rec := s.call(t, "GET", "/v1/apps/"+app+"/orders/"+chosen+"/pull", "")
		if rec.Code != want {
			t.Errorf("through app %s: status %d, want %d: %s", app, rec.Code, want, rec.Body)
		}
		if want != 200 {
			continue
		}
		if got := decodeBody[machinesapi.PullLine](t, rec.Body.Bytes()); got.Worker != "w3" || got.Image == nil || got.Image.Pull == nil {
			t.Errorf("through app %s: %s", app, rec.Body)
		}
	}
	if rec := s.call(t, "GET", "/v1/apps/shop/orders/"+chosen[:5]+"/pull", ""); rec.Code != 400 {
		t.Errorf("unknown order: status %d", rec.Code)
	}
}
