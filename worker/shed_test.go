package worker

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// A worker that has reached its limit of concurrent claims answers with a code that is neither a
// refusal nor an unknown outcome. The claim was not recorded, so the order may be filled on another
// worker without being canceled here.
func TestClaimsBeyondTheLimit(t *testing.T) {
	h := newHost(t, nil)
	h.Worker.turns = throttle.NewOrderLimiter(throttle.OrderLimits{Concurrency: 1, InProgress: 1})
	turn, err := h.Worker.turns.Take(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = direct.Serve(ctx, ln, direct.Handler("w1", h.Handler()), nil, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { stop(); <-served })
	f := direct.New(nil)
	t.Cleanup(f.Close)
	to := bourse.Member{ID: "w1", Address: ln.Addr().String()}
	claim := &bourse.Claim{Order: *newOrder(t)}
	client := fabric.Trader{Fabric: f}
	if _, refusal, err := client.Claim(t.Context(), to, claim); refusal != nil || bourse.CodeOf(err) != bourse.CodeRateLimited {
		t.Errorf("beyond the limit: refusal %+v, error %v, want code %s", refusal, err, bourse.CodeRateLimited)
	}
	turn.Done()
	if fill, refusal, err := client.Claim(t.Context(), to, claim); fill == nil || refusal != nil || err != nil {
		t.Errorf("within the limit: refusal %+v, error %v", refusal, err)
	}
}
