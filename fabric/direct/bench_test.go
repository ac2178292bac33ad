package direct_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
)

// BenchmarkCall is one round trip with a quote's sizes, on loopback: what
// net/http itself needs for it, and what the fabric does.
func BenchmarkCall(b *testing.B) {
	reply := bytes.Repeat([]byte{'r'}, 400)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(reply)
	})
	body := bytes.Repeat([]byte{'q'}, 800)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // calls have deadlines
	defer cancel()

	b.Run("bare", func(b *testing.B) {
		ln, _ := serve(b, answer, nil)
		t := &http.Transport{MaxIdleConnsPerHost: 256}
		b.Cleanup(t.CloseIdleConnections)
		client := &http.Client{Transport: t}
		measure(b, func() (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ln.Addr().String()+"/worker/quote", bytes.NewReader(body))
			if err != nil {
				return nil, err
			}
			return client.Do(req)
		})
	})
	for _, secure := range []bool{false, true} {
		name, n := "plain", newNetwork(b, nil)
		if secure {
			name, n = "tls", newNetwork(b, newCA(b))
		}
		b.Run(name, func(b *testing.B) {
			w := n.Serve("w1", answer)
			measure(b, func() (*http.Response, error) { return n.fabric.Call(ctx, w.Member, request(body)) })
		})
	}
}

func request(body []byte) *http.Request {
	r, _ := http.NewRequest(http.MethodPost, "/worker/quote", bytes.NewReader(body))
	return r
}

func measure(b *testing.B, call func() (*http.Response, error)) {
	one := func() error {
		resp, err := call()
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	b.Run("clients=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := one(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("clients=16", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := one(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkAsk is an order put to six workers, typed at both ends.
func BenchmarkAsk(b *testing.B) {
	n := newNetwork(b, nil)
	var members []bourse.Member
	for _, id := range []bourse.WorkerID{"w1", "w2", "w3", "w4", "w5", "w6"} {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var o bourse.Order
			if err := fabric.ReadJSON(w, r, &o); err != nil {
				fabric.WriteFailure(w, err)
				return
			}
			fabric.WriteJSON(w, bourse.Quote{Worker: id, Region: "gru", Accounts: []bourse.Account{{Resource: "cpu", Total: 8000}}})
		})
		members = append(members, n.Serve(id, direct.Handler(id, h)).Member)
	}
	order := &bourse.Order{ID: bourse.NewOrderID(), Regions: []bourse.Choice{{"gru"}}, Config: bourse.Config{Image: "host"}}
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		got := 0
		n.fabric.Ask(ctx, members, order, func(bourse.Quote) { got++ })
		cancel()
		if got != len(members) {
			b.Fatalf("%d of %d answered", got, len(members))
		}
	}
}

// BenchmarkStream is a command's output and input at once, a megabyte of each
// for each round, through frames on loopback.
func BenchmarkStream(b *testing.B) {
	for _, secure := range []bool{false, true} {
		name, n := "plain", newNetwork(b, nil)
		if secure {
			name, n = "tls", newNetwork(b, newCA(b))
		}
		b.Run(name, func(b *testing.B) {
			w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fabric.ServeExec(w, r, func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
					_, err := io.Copy(e.Stdout, e.Stdin)
					return bourse.Exit{}, err
				})
			}))
			s, err := fabric.NewClient(n.fabric).ExecStream(b.Context(), w.Member, "148e21ea1d5389", fabric.ExecStart{Command: []string{"cat"}, Stdin: true})
			if err != nil {
				b.Fatal(err)
			}
			block := make([]byte, 1<<20)
			b.SetBytes(int64(len(block)))
			done := make(chan error, 1)
			go func() {
				_, err := s.Copy(io.Discard, io.Discard)
				done <- err
			}()
			for b.Loop() {
				if _, err := s.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(s.CloseWrite(), <-done); err != nil {
				b.Fatal(err)
			}
		})
	}
}
