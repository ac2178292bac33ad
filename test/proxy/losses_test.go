package proxy

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/bourse-dev/bourse/machinesapi"
)

// rate is the number of requests per second while servers are killed.
const rate = 200

// TestLosses kills a worker with all its machines at 200 requests per second, which clients
// must not notice. Then it kills the only broker and one of the proxies. Known apps must
// still be served.
func TestLosses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 2, 2, nil, nil)
	lost := h.run("web", h.order(kindWeb), "w1")
	h.run("web", h.order(kindWeb), "w2")
	transport := &http.Transport{MaxIdleConnsPerHost: rate}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: waitTimeout}
	url := "http://" + h.proxies[0].Web[0] + "/"
	seen := map[string]bool{}
	h.eventually("both machines answer", func() error {
		r, err := get(client, url, "web.localhost", "")
		if err != nil {
			return err
		}
		if seen[r.Machine] = true; len(seen) < 2 {
			return fmt.Errorf("all replies came from machine %s, want replies from two", r.Machine)
		}
		return nil
	})

	var byLost atomic.Int64
	ask := func(i int) error {
		r, err := get(client, url, "web.localhost", strconv.Itoa(i))
		if err == nil && (r.App != "web" || r.Nonce != strconv.Itoa(i)) {
			err = fmt.Errorf("reply %+v, want one of app web with nonce %d", r, i)
		}
		if r.Machine == string(lost.ID) {
			byLost.Add(1)
		}
		return err
	}
	l := startLoad(rate, ask)
	l.more(t, rate/2)
	if byLost.Load() == 0 {
		t.Error("no request was sent to the machine that will be lost")
	}
	h.loseWorker(0, lost)
	l.more(t, rate)
	if err := h.broker.Kill(); err != nil {
		t.Error(err)
	}
	l.more(t, rate)
	if err := h.proxies[1].Kill(); err != nil {
		t.Error(err)
	}
	l.more(t, rate)
	before := byLost.Load()
	l.more(t, rate/2)
	if now := byLost.Load(); now != before {
		t.Errorf("%d requests were answered by a lost machine, want none", now-before)
	}
	l.end(t)
}

// loseWorker simulates the loss of a worker's host by killing the worker's daemon, its
// supervisor and its machine at the same time.
func (h *house) loseWorker(i int, m machinesapi.Machine) {
	h.Helper()
	pids := append(processesOf(h.data[i]), m.PID)
	if m.PID <= 1 || len(pids) < 3 {
		h.Fatalf("processes of worker %d: %v, want its daemon, its supervisor and its machine", i+1, pids)
	}
	for _, pid := range pids {
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			h.Errorf("kill %d: %v", pid, err)
		}
	}
	_ = h.workers[i].Cmd.Wait() // returns the kill as an error
}
