package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// soakFor is the duration for which servers are killed.
var soakFor = flag.Duration("soak", time.Minute, "how long servers are killed in TestSoak")

// soak is a house under load, whose servers are killed.
type soak struct {
	*house
	apps    []bourse.AppName
	urls    []string // the proxies' URLs
	clients []*http.Client
	down    atomic.Int64 // incremented when the victim proxy is killed and when it serves again, so it is odd while the proxy is down

	mu      sync.Mutex
	replies map[int]int // numbers of replies, by status
	excused int         // number of failed requests to the victim proxy while it was down
	kills   int
	opened  int // number of WebSockets and event streams that were opened
	said    int // number of messages and events received over these connections
}

// TestSoak kills and restarts the workers' daemons, the broker and one of two proxies at
// random under load. Each reply must belong to its request. Each request to the other proxy
// must be answered, even if only by a 5xx status. No WebSocket or event stream may lose a
// message before it breaks. The other proxy must not leak goroutines or files.
func TestSoak(t *testing.T) {
	s := &soak{house: newHouse(t, 2, 2, nil, nil), apps: []bourse.AppName{"one", "two", "three"}, replies: map[int]int{}}
	for _, app := range s.apps {
		for i := range s.workers {
			s.run(app, s.order(kindWeb), s.workers[i].Name)
		}
		for _, p := range s.proxies {
			s.routed(http.DefaultClient, "http://"+p.Web[0]+"/", string(app)+".localhost")
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for _, p := range s.proxies {
		s.urls = append(s.urls, "http://"+p.Web[0]+"/")
	}
	s.settle()
	for _, h2 := range []bool{false, true} {
		s.clients = append(s.clients, from("127.0.0.1", h2))
	}
	before := s.kept()

	ctx, cancel := context.WithTimeout(t.Context(), *soakFor)
	defer cancel()
	var killers sync.WaitGroup
	for _, victims := range [][]*servertest.Server{{s.broker}, s.workers, {s.proxies[1]}} {
		killers.Go(func() { s.kill(ctx, victims) })
	}
	l := startLoad(100, s.ask)
	var open sync.WaitGroup
	for i := range s.proxies {
		for _, app := range s.apps {
			open.Go(func() { s.stayOpen(ctx, i, app, s.socket) })
			open.Go(func() { s.stayOpen(ctx, i, app, s.events) })
		}
	}
	killers.Wait()
	open.Wait()
	l.end(t)
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	t.Logf("%d kills; replies by status: %v; %d requests were sent to a killed proxy", s.kills, s.replies, s.excused)
	t.Logf("%d messages over WebSockets and event streams, which were opened %d times", s.said, s.opened)
	if s.said < int(soakFor.Seconds()) || s.opened < 2*len(s.apps) {
		t.Errorf("%d messages were received over %d long-lived connections, which is not enough load", s.said, s.opened)
	}
	if n := s.replies[http.StatusOK]; n < l.asked/2 {
		t.Errorf("only %d of %d requests were answered by machines, which is not enough load", n, l.asked)
	}
	s.eventually("the proxy has released the resources of the load", func() error {
		if now := s.kept(); now.files > before.files+20 || now.goroutines > before.goroutines+40 {
			return fmt.Errorf("the proxy uses %+v, want about as much as before the load: %+v", now, before)
		}
		return nil
	})
}

// settle makes restarted servers use their current addresses again, and lets them join
// through servers other than the broker.
func (s *soak) settle() {
	for _, x := range slices.Concat([]*servertest.Server{s.broker}, s.workers, s.proxies) {
		x.Settle()
		for i, arg := range x.Args {
			switch arg {
			case "--http":
				x.Args[i+1] = x.Web[0] + "=any"
			case "--https":
				x.Args[i+1] = x.SecureWeb[0] + "=any"
			}
		}
		if x != s.proxies[0] {
			x.Args = append(x.Args, "--join", s.proxies[0].Addr)
		}
	}
}

// kill kills and restarts one victim after another. Servers run for at least twice their
// start time in between, so that they make progress even on a slow host.
func (s *soak) kill(ctx context.Context, victims []*servertest.Server) {
	var took time.Duration // duration of the latest restart
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(500*time.Millisecond + rand.N(time.Second) + 2*took):
		}
		v := victims[rand.IntN(len(victims))]
		if v == s.proxies[1] {
			s.down.Add(1)
		}
		began := time.Now()
		err := v.Kill()
		if err == nil {
			err = v.Start()
		}
		took = time.Since(began)
		if err != nil {
			s.Errorf("%s: %v", v.Name, err)
			return
		}
		if v == s.proxies[1] {
			s.down.Add(1)
		}
		s.mu.Lock()
		s.kills++
		s.mu.Unlock()
	}
}

// ask sends request number i, over HTTP/1.1 or HTTP/2, and with or without a body.
func (s *soak) ask(i int) error {
	app, p, nonce := s.apps[i%len(s.apps)], s.proxies[i/2%2], strconv.Itoa(i)
	var body io.Reader
	method := http.MethodGet
	if i%5 == 0 {
		method, body = http.MethodPost, strings.NewReader(strings.Repeat("x", rand.IntN(100_000)))
	}
	req, err := http.NewRequest(method, s.urls[i/2%2], body)
	if err != nil {
		return err
	}
	req.Host = string(app) + ".localhost"
	req.Header.Set(headerNonce, nonce)
	down := s.down.Load()
	r, err := send(s.clients[i%2], req)
	status := http.StatusOK
	refused, isRefused := errors.AsType[*statusError](err)
	switch {
	case err == nil && (r.App != string(app) || r.Nonce != nonce):
		return fmt.Errorf("reply %+[3]v, want one of app %[2]s with nonce %[1]s", nonce, app, r)
	case isRefused && refused.status >= 500:
		status = refused.status
	case err != nil && !isRefused && p == s.proxies[1] && (down%2 == 1 || s.down.Load() != down):
		status = 0
	case err != nil:
		return fmt.Errorf("%s of %s through %s: %w", method, app, p.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if status == 0 {
		s.excused++
	} else {
		s.replies[status]++
	}
	return nil
}

// kept contains the numbers of a proxy's open files and goroutines.
type kept struct{ files, goroutines int }

// kept returns the numbers of the surviving proxy's open files and goroutines.
func (s *soak) kept() (k kept) {
	s.Helper()
	p := s.proxies[0]
	list, err := filepath.Glob("/proc/" + strconv.Itoa(p.Cmd.Process.Pid) + "/fd/*")
	if err != nil {
		s.Fatal(err)
	}
	k.files = len(list)
	req, err := http.NewRequest(http.MethodGet, "http://"+p.API+"/proxy/metrics", nil)
	if err != nil {
		s.Fatal(err)
	}
	p.Proof(s).ShowTo(req.Header, p.API)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	_, after, found := strings.Cut(string(text), "\ngo_goroutines ")
	number, _, _ := strings.Cut(after, "\n")
	if k.goroutines, _ = strconv.Atoi(number); err != nil || !found || k.goroutines == 0 {
		s.Fatalf("read the proxy's metrics: %s, %v, %.200s", resp.Status, err, text)
	}
	return k
}
