package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// idleAfter is the time after which workers stop idle machines in these tests.
const idleAfter = time.Second

// TestAppWithoutRunningMachinesAnswersCurl sends a request with curl to an app without running machines, over HTTP/1.1
// and over HTTP/2 with prior knowledge. The first reply must be correct. Afterwards the machine must be stopped
// automatically, and its events must contain the reason.
func TestAppWithoutRunningMachinesAnswersCurl(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1, 1, []string{"--idle-after", idleAfter.String()}, nil)
	id := h.create("shop", h.order(kindWeb))
	if m := h.machine("shop", id); m.State != bourse.StateStopped && m.State != bourse.StateCreated {
		t.Fatalf("before the request, the machine is %s, want stopped or created", m.State)
	}
	url := "http://" + h.proxies[0].Web[0] + "/"
	if first := h.routed(http.DefaultClient, url, "shop.localhost"); first.Asked != 1 || first.Proto != "HTTP/1.1" {
		t.Errorf("the first reply is %+v, want the machine's first reply", first)
	}
	for i, c := range []struct{ flag, version string }{{"--http1.1", "1.1"}, {"--http2-prior-knowledge", "2"}} {
		h.stop("shop", id)
		begin := time.Now()
		out, err := exec.CommandContext(t.Context(), "curl", "-sS", c.flag, "--max-time", "60", "-H", "Host: shop.localhost", "-H", headerNonce+": n"+strconv.Itoa(i),
			"-w", "\n%{http_version} %{http_code}", url).CombinedOutput()
		t.Logf("%s: answered in %v", c.flag, time.Since(begin).Round(time.Millisecond))
		if err != nil {
			t.Fatalf("curl %s: %v\n%s", c.flag, err, out)
		}
		body, result, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		for _, want := range []string{`"app":"shop"`, `"nonce":"n` + strconv.Itoa(i) + `"`, `"machine":"` + string(id) + `"`, `"asked":1}`} {
			if !strings.Contains(body, want) {
				t.Errorf("curl %s printed %s, want %s in it", c.flag, body, want)
			}
		}
		if want := c.version + " 200"; strings.TrimSpace(result) != want {
			t.Errorf("curl %s: version and status %q, want %q", c.flag, result, want)
		}
	}
	h.atZero("shop", id, 3)
}

// atZero waits until a machine has been started the given number of times, and its worker
// has stopped it because it was idle.
func (h *house) atZero(app bourse.AppName, id bourse.MachineID, starts int) {
	h.Helper()
	h.eventually("app "+string(app)+" is at zero", func() error {
		m, err := h.api.Machine(h.Context(), app, id)
		if err == nil && (m.State != bourse.StateStopped || m.Starts != starts) {
			err = fmt.Errorf("machine %s is %s after %d starts, want stopped after %d", id, m.State, m.Starts, starts)
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(m.Events, func(e machinesapi.Event) bool {
			return e.Source == "worker" && strings.HasPrefix(e.Reason, "idle for")
		}) {
			return fmt.Errorf("no event of machine %s reports that it was idle: %+v", id, m.Events)
		}
		return nil
	})
}

// flood is the number of simultaneous requests. Each request has its own connection, except
// over HTTP/2. They come from two addresses, because a proxy accepts at most an eighth of
// its connections from one address.
const flood = 5000

// TestFloodStartsAStoppedMachineOnce sends thousands of simultaneous requests for one stopped machine. All must be
// answered, and the machine must be started only once.
func TestFloodStartsAStoppedMachineOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1, 1, nil, nil)
	id := h.create("flood", h.order(kindWeb))
	url := "http://" + h.proxies[0].Web[0] + "/"
	h.routed(http.DefaultClient, url, "flood.localhost")
	h.stop("flood", id)

	clients := [3]*http.Client{from("127.0.0.1", false), from("127.0.0.2", false), from("127.0.0.3", true)}
	for _, c := range clients {
		defer c.CloseIdleConnections()
	}
	var done sync.WaitGroup
	var wrong atomic.Int64
	var asked sync.Map
	begin := time.Now()
	for i := range flood {
		done.Go(func() {
			nonce := "n" + strconv.Itoa(i)
			r, err := get(clients[i%len(clients)], url, "flood.localhost", nonce)
			if err == nil && (r.App != "flood" || r.Machine != string(id) || r.Nonce != nonce) {
				err = fmt.Errorf("reply %+v, want one of app flood and machine %s with nonce %s", r, id, nonce)
			}
			if _, twice := asked.LoadOrStore(r.Asked, i); err == nil && twice {
				err = fmt.Errorf("two replies state that they were the machine's request number %d", r.Asked)
			}
			if err != nil && wrong.Add(1) <= 5 {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	done.Wait()
	t.Logf("%d requests, answered in %v", flood, time.Since(begin).Round(time.Millisecond))
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d of %d requests had no reply or a wrong one, want none", n, flood)
	}
	if m := h.machine("flood", id); m.Starts != 2 {
		t.Errorf("the machine was started %d times, want 2: for the first request, and once for all the others", m.Starts)
	}
}

// from returns a client that connects from a loopback address. It uses a new connection for
// each request or, if h2 is set, HTTP/2 without TLS.
func from(ip string, h2 bool) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: waitTimeout}
	transport := &http.Transport{
		// Retry, because the accept queue is limited: a client that does not fit connects
		// again after a second.
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			for range 10 {
				if c, err = dialer.DialContext(ctx, network, addr); err == nil || errors.Is(err, context.Canceled) {
					break
				}
			}
			return c, err
		},
		MaxIdleConnsPerHost: flood, Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: transport, Timeout: 2 * waitTimeout}
}
