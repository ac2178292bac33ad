package broker_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestAFilledOrderIsToldByItsWorker(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"mad"}`)
	id := rec.Header().Get("Bourse-Order-Id")
	rec = s.call(t, "GET", "/v1/orders/"+strings.ToLower(id), "")
	got := decodeBody[bourse.Decision](t, rec.Body.Bytes())
	if rec.Code != 200 || got.Order != bourse.OrderID(id) || got.Worker != "w3" || got.Outcome != bourse.OutcomeFilled {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
	t.Run("also when others are silent", func(t *testing.T) {
		s.workers["w1"].silence(errDown)
		if rec := s.call(t, "GET", "/v1/orders/"+id, ""); rec.Code != 200 {
			t.Errorf("status %d", rec.Code)
		}
	})
	t.Run("when it is silent nobody can say that there is none", func(t *testing.T) {
		s.workers["w3"].silence(errDown)
		if rec := s.call(t, "GET", "/v1/orders/"+id, ""); rec.Code != 503 {
			t.Errorf("status %d", rec.Code)
		}
	})
}
