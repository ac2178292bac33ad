package nats_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// BenchmarkCall measures a round trip the size of a claim over an embedded NATS server, as a call and as a request.
func BenchmarkCall(b *testing.B) {
	n := newNetwork(b, embedded(b), false, nil)
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	body := []byte(strings.Repeat("q", 1<<10))
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // like real calls, these have a deadline
	defer cancel()
	message := func() (int, error) {
		a, err := n.fabric.Send(ctx, w.Member, &fabric.Message{Method: http.MethodPost, URI: "/worker/order/claim", Body: body})
		return len(a.Body), err
	}
	connection := func() (int, error) { return called(ctx, n.fabric, w.Member, body) }
	for name, call := range map[string]func() (int, error){"call": message, "request": connection} {
		b.Run(name+"/clients=1", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n, err := call(); err != nil || n != len(body) {
					b.Fatal(n, err)
				}
			}
		})
		b.Run(name+"/clients=16", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if n, err := call(); err != nil || n != len(body) {
						b.Error(n, err)
						return
					}
				}
			})
		})
	}
}

// called calls a worker over a connection, and returns the length of the reply.
func called(ctx context.Context, f fabric.Fabric, to bourse.Member, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/worker/order/claim", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := f.Call(ctx, to, req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return int(n), err
}
