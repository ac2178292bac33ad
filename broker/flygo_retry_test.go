package broker_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/superfly/fly-go/flaps"
	"github.com/superfly/fly-go/tokens"

	"github.com/bourse-dev/bourse"
)

// lossy serves the broker, but loses the first reply to a create after the broker has written it. Either the connection
// is reset or, if proxy is set, the client receives a 503, as from a proxy.
func lossy(t *testing.T, s *setup, proxy bool) (url string, creates *atomic.Int64) {
	t.Helper()
	creates = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/apps/shop/machines" {
			s.handler.ServeHTTP(w, r)
			return
		}
		if creates.Add(1) > 1 {
			s.handler.ServeHTTP(w, r)
			return
		}
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
		if proxy {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a linger of zero makes Close reset the connection
		}
		_ = conn.Close()
	}))
	t.Cleanup(server.Close)
	return server.URL, creates
}

// orderIDs sets the order ID from a request's context in the header of every attempt.
type orderIDs struct{}

type orderKey struct{}

func (orderIDs) RoundTrip(r *http.Request) (*http.Response, error) {
	if id, ok := r.Context().Value(orderKey{}).(bourse.OrderID); ok {
		r = r.Clone(r.Context())
		r.Header.Set("Bourse-Order-Id", string(id))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestLostReplyCreatesNoSecondMachine checks what happens if the reply to a create is lost. The client does not retry
// if the connection broke, but it retries if a proxy responded with 503. If the header contains an order ID, the retry
// is the same order. If the machine has a name, the retry is refused.
func TestLostReplyCreatesNoSecondMachine(t *testing.T) {
	for _, c := range []struct {
		name        string
		proxy       bool
		machineName string
		id          bourse.OrderID
		works       bool
		creates     int64
	}{
		{name: "the connection breaks", creates: 1},
		{name: "a proxy responds 503, and the order has an ID", proxy: true, id: bourse.NewOrderID(), works: true, creates: 2},
		{name: "a proxy responds 503, and the machine has a name", proxy: true, machineName: "web", creates: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			s.app(t, "shop", "personal")
			url, creates := lossy(t, s, c.proxy)
			t.Setenv("FLY_FLAPS_BASE_URL", url)
			client, err := flaps.NewWithOptions(t.Context(), flaps.NewClientOpts{Tokens: tokens.Parse("any"), Transport: orderIDs{}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, in := t.Context(), flyInput()
			in.Name = c.machineName
			if c.id != "" {
				ctx = context.WithValue(ctx, orderKey{}, c.id)
			}
			if _, err := client.Launch(ctx, "shop", in); (err == nil) != c.works {
				t.Errorf("launch: %v", err)
			}
			if got := creates.Load(); got != c.creates {
				t.Errorf("%d requests, want %d", got, c.creates)
			}
			list, err := client.List(t.Context(), "shop", "")
			if err != nil || len(list) != 1 {
				t.Errorf("%d machines, %v", len(list), err)
			}
		})
	}
}
