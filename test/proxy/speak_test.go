package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestProxyProtocols checks protocols other than simple requests, also with a stopped machine. gRPC with streams over
// TLS, server-sent events, WebSockets and TCP streams must be forwarded without delay.
func TestProxyProtocols(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1, 1, nil, []string{"--tcp", "127.0.0.1:0=raw:7"})
	h.create("health", h.order(kindGRPC))
	h.create("raw", h.order(kindEcho))
	h.create("web", h.order(kindWeb))
	h.routed(http.DefaultClient, "http://"+h.proxies[0].Web[0], "web.localhost") // the other apps were created earlier, so they are routed as well
	t.Run("gRPC", h.speaksGRPC)
	t.Run("events", h.speaksEvents)
	t.Run("WebSocket", h.speaksWebSocket)
	t.Run("bytes", h.speaksBytes)
}

// insecure returns a TLS configuration that accepts the proxy's self-signed certificates.
func insecure(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

func (h *house) speaksGRPC(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///"+h.proxies[0].SecureWeb[0], grpc.WithAuthority("health.localhost"),
		grpc.WithTransportCredentials(credentials.NewTLS(insecure("health.localhost"))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	first, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || first.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("Check: %v, %v; want SERVING", first, err)
	}
	watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "changing"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_NOT_SERVING, grpc_health_v1.HealthCheckResponse_SERVING} {
		now, err := watch.Recv()
		if err != nil || now.Status != want {
			t.Fatalf("Watch, message %d: %v, %v; want %s", i, now, err, want)
		}
		if i == 0 { // the first value must arrive before the value changes
			if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "changing"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "unknown"})
	if s := status.Code(err); s != codes.NotFound {
		t.Errorf("check of an unknown service: %v, want NotFound in the trailer", err)
	}
}

func (h *house) speaksEvents(t *testing.T) {
	url := "http://" + h.proxies[0].Web[0]
	client := &http.Client{Timeout: waitTimeout}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events?id=go&n=3", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "web.localhost"
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%s of %s, want events", resp.Status, got)
	}
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		event, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		n++
		// The machine sends the next event only after this one was confirmed. If the proxy
		// buffered events, this would block forever.
		seen, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/seen/"+event, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen.Host = "web.localhost"
		r, err := client.Do(seen)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	if n != 3 {
		t.Errorf("%d events were received, want 3", n)
	}
}

func (h *house) speaksWebSocket(t *testing.T) {
	for name, at := range map[string]func() (net.Conn, error){
		"ws":  func() (net.Conn, error) { return net.Dial("tcp", h.proxies[0].Web[0]) },
		"wss": func() (net.Conn, error) { return tls.Dial("tcp", h.proxies[0].SecureWeb[0], insecure("web.localhost")) },
	} {
		conn, err := at()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(waitTimeout))
		config, err := websocket.NewConfig(name+"://web.localhost/socket", "http://web.localhost/")
		if err != nil {
			t.Fatal(err)
		}
		socket, err := websocket.NewClient(config, conn)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range []string{"one", strings.Repeat("x", 1<<16)} {
			var got string
			if err := websocket.Message.Send(socket, want); err != nil {
				t.Fatal(err)
			}
			if err := websocket.Message.Receive(socket, &got); err != nil || got != want {
				t.Fatalf("%s: %d bytes were received, %v; want the %d bytes that were sent", name, len(got), err, len(want))
			}
		}
		socket.Close()
	}
}

// speaksBytes checks that the end of the client's data reaches the machine, and that the
// machine's remaining data still reaches the client afterwards.
func (h *house) speaksBytes(t *testing.T) {
	conn, err := net.Dial("tcp", h.proxies[0].Streams[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	sent := strings.Repeat("all of this\n", 100_000)
	go func() {
		_, _ = io.WriteString(conn, sent) // the check of the echoed data detects errors
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != sent {
		t.Errorf("%d bytes were received, %v; want the %d bytes that were sent", len(got), err, len(sent))
	}
}
