package direct_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// TestManyCalls makes calls, many of which are canceled or aborted, while their worker is
// repeatedly killed and restarted. Every caller's result must agree with what the handler
// saw.
func TestManyCalls(t *testing.T) {
	both(t, func(t *testing.T, n *network) {
		s := fabrictest.NewSeen()
		w := n.Serve("w1", s)
		stop := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() { kills(n, &w, s, stop) })
		fabrictest.SendMany(t, n.fabric, w.Member, s, 150, false)
		close(stop)
		chaos.Wait()
	})
}

// kills repeatedly kills the worker and restarts it at its address.
func kills(n *network, w *fabrictest.Worker, h http.Handler, stop <-chan struct{}) {
	now := *w
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		now.Kill()
		n.at = w.Member.Address
		now = n.Serve(w.Member.ID, h)
	}
}
