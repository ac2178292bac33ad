package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// The kinds of machines. The kind determines what a machine serves.
const (
	kindWeb  = "web"  // HTTP/1.1 and HTTP/2 without TLS, server-sent events, and WebSockets
	kindGRPC = "grpc" // the gRPC health service
	kindEcho = "echo" // TCP; the machine echoes what it receives
)

// reply is a web machine's reply to all requests except those for a page.
type reply struct {
	App         string `json:"app"`
	Machine     string `json:"machine"`
	Nonce       string `json:"nonce"`                 // nonce of the request
	Proto       string `json:"proto"`                 // protocol of the request as the machine received it
	Traceparent string `json:"traceparent,omitempty"` // header Traceparent of the request
	Asked       int    `json:"asked"`                 // number of requests since the machine's start
}

// headerNonce is a request header whose value the machine returns in its reply.
const headerNonce = "X-Nonce"

// runMachine is the program of the test's machines. It runs until it receives a signal to stop.
func runMachine(kind string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	switch kind {
	case kindGRPC:
		err = serveHealth(ctx, l)
	case kindEcho:
		err = serveEcho(l)
	default:
		err = serveWeb(l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// serveHealth serves the gRPC health service. The service "changing" becomes healthy once
// "next" is checked, so that a watcher can observe the change.
func serveHealth(ctx context.Context, l net.Listener) error {
	status := health.NewServer()
	status.SetServingStatus("changing", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if r, ok := in.(*grpc_health_v1.HealthCheckRequest); ok && r.Service == "changing" {
			defer status.SetServingStatus("changing", grpc_health_v1.HealthCheckResponse_SERVING)
		}
		return next(ctx, in)
	}))
	grpc_health_v1.RegisterHealthServer(s, status)
	defer context.AfterFunc(ctx, s.Stop)()
	return s.Serve(l)
}

func serveEcho(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(c, c) // the client detects missing data
			_ = c.(*net.TCPConn).CloseWrite()
			_ = c.Close()
		}()
	}
}

// web is a machine that serves HTTP.
type web struct {
	mu    sync.Mutex
	asked int
	seen  map[string]chan struct{} // channels by event; closed when a client has confirmed that it received the event
	told  map[string]string        // reports of pages, by id
}

func serveWeb(l net.Listener) error {
	w := &web{seen: map[string]chan struct{}{}, told: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/", w.answer)
	mux.HandleFunc("GET /page", page)
	mux.HandleFunc("GET /events", w.events)
	mux.HandleFunc("GET /counts", counts)
	mux.HandleFunc("/seen/{event}", w.see)
	mux.HandleFunc("POST /report/{id}", w.report)
	mux.HandleFunc("GET /report/{id}", w.reported)
	mux.Handle("/socket", websocket.Server{Handler: echoMessages})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func echoMessages(c *websocket.Conn) {
	for {
		var message string
		if websocket.Message.Receive(c, &message) != nil || websocket.Message.Send(c, message) != nil {
			return // the client detects missing data
		}
	}
}

func (w *web) answer(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked++
	n := w.asked
	w.mu.Unlock()
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(reply{ // the client detects missing data
		App: os.Getenv("FLY_APP_NAME"), Machine: os.Getenv("FLY_MACHINE_ID"), Nonce: r.Header.Get(headerNonce), Proto: r.Proto, Traceparent: r.Header.Get("Traceparent"), Asked: n,
	})
}

// countEvery is the interval between events of /counts.
const countEvery = 100 * time.Millisecond

// counts sends the events 0, 1, 2 and so on, until the client disconnects.
func counts(out http.ResponseWriter, r *http.Request) {
	out.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		_, err := fmt.Fprintf(out, "data: %d\n\n", i)
		if err == nil {
			err = http.NewResponseController(out).Flush()
		}
		if err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// events sends n events of a stream; n and the stream's id are query parameters. It sends the first event immediately,
// and each other event after the client has confirmed the previous one.
func (w *web) events(out http.ResponseWriter, r *http.Request) {
	out.Header().Set("Content-Type", "text/event-stream")
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	for i := range n {
		event := r.URL.Query().Get("id") + "-" + strconv.Itoa(i)
		if _, err := fmt.Fprintf(out, "data: %s\n\n", event); err != nil {
			return
		}
		if err := http.NewResponseController(out).Flush(); err != nil {
			return
		}
		select {
		case <-w.of(event):
		case <-r.Context().Done():
			return
		}
	}
}

func (w *web) see(_ http.ResponseWriter, r *http.Request) {
	c := w.of(r.PathValue("event"))
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

func (w *web) of(event string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.seen[event]
	if c == nil {
		c = make(chan struct{})
		w.seen[event] = c
	}
	return c
}

// report stores a report that a page sends.
func (w *web) report(out http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, 4096))
	if err != nil {
		return // the page has sent no report
	}
	w.mu.Lock()
	w.told[r.PathValue("id")] = string(text)
	w.mu.Unlock()
	r.SetPathValue("event", "report-"+r.PathValue("id"))
	w.see(out, r)
}

// reported waits for a page's report and returns it.
func (w *web) reported(out http.ResponseWriter, r *http.Request) {
	select {
	case <-w.of("report-" + r.PathValue("id")):
	case <-r.Context().Done():
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(out, w.told[r.PathValue("id")])
}
