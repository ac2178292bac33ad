package proxy_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/proxy"
)

// ordersOf is a proxy.Orders that a test controls.
type ordersOf func(like bourse.MachineID) (fabric.FailoverOrder, error)

func (f ordersOf) Order(_ context.Context, _ string, like bourse.MachineID) (fabric.FailoverOrder, error) {
	return f(like)
}

// full stops all machines and makes their hosts full. It removes the last machine from the target; this is the machine
// that an order provides.
func (w *world) full() {
	for i := range w.target.Backends {
		w.target.Backends[i].State = bourse.StateStopped
	}
	last := len(w.target.Backends) - 1
	ordered := w.target.Backends[last].Machine
	w.target.Backends = w.target.Backends[:last]
	w.use = func(_ context.Context, id bourse.MachineID) error {
		if id != ordered {
			return bourse.Errorf(bourse.CodeInsufficient, "insufficient memory")
		}
		return nil
	}
}

// TestOrderElsewhere sends many requests for stopped machines on full hosts. Only one machine may be ordered, and it
// must answer all requests, including those with bodies.
func TestOrderElsewhere(t *testing.T) {
	w := newWorld(t, handle(echo), handle(echo), handle(echo))
	w.full()
	var orders atomic.Int64
	w.config.Orders = ordersOf(func(like bourse.MachineID) (fabric.FailoverOrder, error) {
		orders.Add(1)
		if like != first && like != second {
			t.Errorf("order based on machine %s, want one of the stopped machines", like)
		}
		return fabric.FailoverOrder{Order: "01", Machine: third, Worker: "w2", Region: "gru"}, nil
	})
	w.start(proxy.Listener{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			resp, text := w.do(w.request(http.MethodPost, "/", strings.NewReader("hello")))
			if resp.StatusCode != 200 || !strings.Contains(text, `"Body":"hello"`) {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	wg.Wait()
	// Requests that arrive before the new machine is in the routing table use it, too.
	if resp, _ := w.do(w.request(http.MethodGet, "/", nil)); resp.StatusCode != 200 || orders.Load() != 1 {
		t.Errorf("status %d after %d orders", resp.StatusCode, orders.Load())
	}
}

// TestOrderElsewhereRefused checks that the reply contains the order's ID if no worker accepts the order, and that a
// request for a specific machine does not place an order.
func TestOrderElsewhereRefused(t *testing.T) {
	w := newWorld(t, handle(echo), handle(echo))
	w.full()
	var orders atomic.Int64
	w.config.Orders = ordersOf(func(bourse.MachineID) (fabric.FailoverOrder, error) {
		orders.Add(1)
		return fabric.FailoverOrder{Order: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, bourse.Errorf(bourse.CodeInsufficient, "secret reasons of workers")
	})
	w.start(proxy.Listener{})
	r := w.request(http.MethodGet, "/", nil)
	r.Header.Set("Fly-Force-Instance-Id", first)
	if resp, text := w.do(r); resp.StatusCode != 503 || orders.Load() != 0 {
		t.Errorf("status %d after %d orders: %s", resp.StatusCode, orders.Load(), text)
	}
	for range 2 {
		resp, text := w.do(w.request(http.MethodGet, "/", nil))
		if resp.StatusCode != 503 || !strings.Contains(text, "no other worker accepted order 01ARZ3NDEKTSV4RRFFQ69G5FAV") || strings.Contains(text, "secret") {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	w.eventually("the cause is in the log", func() bool { return strings.Contains(w.log.String(), "secret reasons of workers") })
}
