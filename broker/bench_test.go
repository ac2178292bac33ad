package broker_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
)

// BenchmarkCreate measures the broker's share of the time to place an order, without the network and the exchange.
func BenchmarkCreate(b *testing.B) {
	s := start(b, func(c *broker.Config) { c.Log = nil; c.Exchange = instant{c.Exchange} })
	body := `{"config":` + hostConfig + `,"region":"gru"}`
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(b.Context(), "POST", createPath, strings.NewReader(body))
		rec := httptest.NewRecorder()
		s.handler.ServeHTTP(rec, req)
		if rec.Code != 200 {
			b.Fatalf("status %d: %s", rec.Code, rec.Body)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// instant fills every order immediately.
type instant struct{ broker.Exchange }

func (instant) Place(_ context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	return bourse.Fill{Machine: bourse.Machine{
		ID: bourse.NewMachineID(0xaaaaaa), App: order.App.Name, Order: order.ID, Config: order.Config, State: bourse.StateStarted,
	}}, bourse.Decision{Order: order.ID}, nil
}

// BenchmarkList lists 100 machines on three workers, from the view and with complete configs from their owners.
func BenchmarkList(b *testing.B) {
	s := start(b)
	app := s.app(b, "shop", "personal")
	for i := range 100 {
		w := s.workers[s.members[i%len(s.members)].ID]
		w.add(bourse.Order{ID: bourse.NewOrderID().In(app.ID), App: app, Config: bourse.Config{
			Image: "host", Init: bourse.Init{Exec: []string{"sleep", "60"}}, Env: map[string]string{"A": "b"}, Metadata: map[string]string{"group": "app"},
		}}, bourse.StateStarted)
	}
	for name, path := range map[string]string{"view": "/v1/machines", "whole": "/v1/apps/shop/machines"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rec := httptest.NewRecorder()
				s.handler.ServeHTTP(rec, httptest.NewRequestWithContext(b.Context(), "GET", path, nil))
				if rec.Code != 200 {
					b.Fatalf("status %d: %s", rec.Code, rec.Body)
				}
			}
		})
	}
}
