package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// runMachine is the program of a machine. It replies with a text, but never answers
// requests for /slow.
func runMachine(answer string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, answer)
	})}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startProxy starts a proxy for a broker's cluster. If descriptors is not 0, it limits the
// number of files that the proxy may open.
func startProxy(t *testing.T, broker *servertest.Server, descriptors int) *servertest.Server {
	t.Helper()
	p := servertest.New(t, "p1", "serve", "proxy", "--name", "p1", "--region", "gru", "--drain", "1s", "--http", "127.0.0.1:0=any", "--join", broker.Addr)
	if descriptors > 0 {
		p.Launch = func(c *exec.Cmd) error {
			c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), c.Path}, c.Args[1:]...)
			c.Path = "/bin/sh"
			return c.Start()
		}
	}
	servertest.StartAll(t, p)
	return p
}

// serveApp creates an app of an organization with one running machine, and waits until the
// proxy serves it.
func serveApp(t *testing.T, broker, proxy *servertest.Server, app bourse.AppName, org string) bourse.MachineID {
	t.Helper()
	api := servertest.Client(t, broker)
	if _, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: app, Org: org}); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Env: map[string]string{machineVariable: "ok"},
		Init: bourse.Init{Exec: []string{self}},
	}
	c.Services = json.RawMessage(`[{"autostart":true,"ports":[{"port":80,"handlers":["http"]}]}]`)
	m, err := api.Create(t.Context(), app, machinesapi.CreateMachine{Region: "gru", Config: c}, "")
	if err != nil {
		t.Fatal(err)
	}
	if !servertest.Within(30*time.Second, func() bool { return ask(t.Context(), proxy, app, "/") == nil }) {
		t.Fatalf("the proxy does not answer for app %s", app)
	}
	return m.ID
}

// ask sends a request to an app on a new connection.
func ask(ctx context.Context, proxy *servertest.Server, app bourse.AppName, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxy.Web[0]+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Host = string(app) + ".localhost"
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d, want 200: %s", resp.StatusCode, text)
	}
	return err
}

// h2Conn is an HTTP/2 client connection that can send requests that no regular client would
// send.
type h2Conn struct {
	net.Conn
	*http2.Framer

	block   strings.Builder
	encoder *hpack.Encoder
	streams uint32
}

// dialH2 opens an HTTP/2 connection to an address.
func dialH2(t *testing.T, addr string) *h2Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	h := &h2Conn{Conn: c, Framer: http2.NewFramer(c, c)}
	h.encoder = hpack.NewEncoder(&h.block)
	h.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return h
}

// request sends the header of a request without a body. fields contains names and values
// alternately.
func (h *h2Conn) request(fields ...string) error {
	h.block.Reset()
	for f := range slices.Chunk(fields, 2) {
		_ = h.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	h.streams++
	return h.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 2*h.streams - 1, BlockFragment: []byte(h.block.String()), EndStream: true, EndHeaders: true,
	})
}

// reply returns the status of the next reply, or "" if the stream was reset.
func (h *h2Conn) reply() string {
	_ = h.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		f, err := h.ReadFrame()
		if err != nil {
			return ""
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// TestInvalidRequestsDoNotStartMachines sends requests that cannot be forwarded to any machine. They must not start a
// stopped machine, and must not make the proxy consider a healthy machine as failed.
func TestInvalidRequestsDoNotStartMachines(t *testing.T) {
	broker, _ := startPair(t)
	proxy := startProxy(t, broker, 0)
	id := serveApp(t, broker, proxy, "web", "")
	api := servertest.Client(t, broker)
	attack := func() {
		t.Helper()
		for _, change := range [][2]string{
			{":method", "GE T"},
			{":method", "G(T"},
			{":path", "/?a HTTP/1.1"},
			{":authority", "w\u00e9b.localhost"},
			{"trailer", "a b"},
		} {
			fields := []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "web.localhost"}
			if i := slices.Index(fields, change[0]); i >= 0 {
				fields[i+1] = change[1]
			} else {
				fields = append(fields, change[0], change[1])
			}
			c := dialH2(t, proxy.Web[0])
			if err := c.request(fields...); err != nil {
				t.Fatal(err)
			}
			if got := c.reply(); got != "" && got[0] != '4' {
				t.Errorf("%q: status %s, want 4xx", change, got)
			}
			_ = c.Close()
		}
	}
	attack()
	var machines []machinesapi.ProxyMachine
	routed := func() bool { // the proxy may answer before the broker knows the proxy
		status, err := machinesapi.Proxies{Client: api}.Of(t.Context(), "web")
		if err != nil || len(status) == 0 || len(status[0].Routes) == 0 {
			return false
		}
		machines = status[0].Routes[0].Machines
		return len(machines) > 0
	}
	if !servertest.Within(30*time.Second, routed) {
		t.Fatal("the broker does not report where the proxy sends requests")
	}
	if m := machines[0]; m.Use != machinesapi.UseNow {
		t.Errorf("after invalid requests, the proxy's use of the machine is %s (%s), want %s", m.Use, m.Why, machinesapi.UseNow)
	}
	if err := api.Stop(t.Context(), "web", id, machinesapi.StopMachine{}, ""); err != nil {
		t.Fatal(err)
	}
	stopped := func() bool {
		m, err := api.Machine(t.Context(), "web", id)
		return err == nil && m.State == bourse.StateStopped
	}
	if !servertest.Within(10*time.Second, stopped) {
		t.Fatal("the machine did not stop")
	}
	attack()
	if !stopped() {
		t.Error("invalid requests started the machine")
	}
	if err := ask(t.Context(), proxy, "web", "/"); err != nil {
		t.Errorf("valid request: %v", err)
	}
}

// TestFloodDoesNotBlockOtherOrganizations opens ten HTTP/2 connections, with 2,500 requests in total to a slow machine,
// through a proxy that may open 1,024 files. Requests for another organization's app, also on new connections, must be
// answered within a second.
func TestFloodDoesNotBlockOtherOrganizations(t *testing.T) {
	broker, _ := startPair(t)
	proxy := startProxy(t, broker, 1024)
	serveApp(t, broker, proxy, "slow", "acme")
	serveApp(t, broker, proxy, "other", "rival")
	for range 10 {
		c := dialH2(t, proxy.Web[0])
		go func() { // read the replies, because the proxy would otherwise wait
			for {
				if _, err := c.ReadFrame(); err != nil {
					return
				}
			}
		}()
		for range 250 {
			if err := c.request(":method", "GET", ":scheme", "http", ":path", "/slow", ":authority", "slow.localhost"); err != nil {
				t.Fatal(err)
			}
		}
	}
	full := func() bool {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", proxy.Cmd.Process.Pid))
		return err == nil && len(files) > 256
	}
	if !servertest.Within(30*time.Second, full) {
		t.Fatal("the flood did not reach the machine")
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), limitOfAnAnswer)
		if err := ask(ctx, proxy, "other", "/"); err != nil {
			t.Errorf("request for another organization's app: %v", err)
		}
		cancel()
	}
}

// limitOfAnAnswer is the time limit for a request during a flood.
const limitOfAnAnswer = time.Second
