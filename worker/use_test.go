package worker

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// listening starts an HTTP server on a machine's port. It replaces the machine's program, which does not listen in
// these tests.
func listening(t *testing.T, port int) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "it is me") })}
	serving.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
}

func (s *served) use(id bourse.MachineID, change func(*fabric.UseRequest)) (fabric.UseReply, error) {
	req := fabric.UseRequest{
		Machine: id, Port: 8080, Start: true, Wait: bourse.Duration(30 * time.Second), By: "p1", Host: loopback.HostID(), TTL: bourse.Duration(15 * time.Second),
	}
	if change != nil {
		change(&req)
	}
	return fabric.MachineUse.Call(s.t.Context(), s.api, w1, req)
}

// TestUse checks that a stopped machine on the host's network is started once, however many clients request it, and is
// reached at its $PORT, whatever port its service names. Clients on the same host connect directly, and all others
// through the tunnel.
func TestUse(t *testing.T) {
	s := newServed(t)
	m := s.place(func(o *bourse.Order) { o.Config.Services = []byte(`[{"internal_port":8080}]`) })
	s.must(s.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
	s.reaches(m.ID, bourse.StateStopped)
	if _, err := s.use(m.ID, func(r *fabric.UseRequest) { r.Start = false }); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("request that does not start the machine: %v", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got, err := s.use(m.ID, nil)
			if err != nil || got.State != bourse.StateStarted || got.Port != m.Boot.Port || got.Boot != m.Boot.Number+1 ||
				got.Address != net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Boot.Port)) {
				t.Errorf("got %+v, %v; the machine's port is %d", got, err, m.Boot.Port)
			}
		})
	}
	s.reaches(m.ID, bourse.StateStarted)
	listening(t, m.Boot.Port)
	all.Wait()
	far, err := s.use(m.ID, func(r *fabric.UseRequest) { r.Host = "elsewhere" })
	if err != nil || far.Address != "" {
		t.Fatalf("from another host: %+v, %v", far, err)
	}
	c, err := fabric.DialTunnel(t.Context(), s.api, w1, fabric.TunnelRequest{Machine: m.ID, Port: uint16(far.Port)})
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://machine/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "it is me" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUseOfWhatIsNotThere(t *testing.T) {
	s := newServed(t)
	if _, err := s.use("148e21ea1d5389", nil); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("a missing machine: %v", err)
	}
	m := s.place()
	got, err := s.use(m.ID, func(r *fabric.UseRequest) { r.Wait = bourse.Duration(100 * time.Millisecond) })
	if bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("a machine that never listens: %+v, %v", got, err)
	}
	private := s.place(image(rigImage))
	if got, err := s.use(private.ID, nil); err != nil || got.Address != "" || got.Port != 8080 {
		t.Errorf("a machine with a private network: %+v, %v", got, err)
	}
}
