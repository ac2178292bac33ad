package direct_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// BenchmarkCall measures a round trip the size of a quote on loopback, with net/http alone and with the fabric.
func BenchmarkCall(b *testing.B) {
	reply := bytes.Repeat([]byte{'r'}, 400)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(reply)
	})
	body := bytes.Repeat([]byte{'q'}, 800)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // like real calls, these have a deadline
	defer cancel()

	b.Run("bare", func(b *testing.B) {
		ln, _ := serve(b, answer, nil)
		t := &http.Transport{MaxIdleConnsPerHost: 256}
		b.Cleanup(t.CloseIdleConnections)
		client := &http.Client{Transport: t}
		measure(b, func() (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ln.Addr().String()+"/worker/order/quote", bytes.NewReader(body))
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
	r, _ := http.NewRequest(http.MethodPost, "/worker/order/quote", bytes.NewReader(body))
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
	many(b, one)
}

// many measures fn with one caller and with sixteen.
func many(b *testing.B, fn func() error) {
	b.Run("clients=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := fn(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("clients=16", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := fn(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkEcho measures a round trip of 1 kB, as a message and as a request.
func BenchmarkEcho(b *testing.B) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	body := bytes.Repeat([]byte{'q'}, 1<<10)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // like real calls, these have a deadline
	defer cancel()
	for _, secure := range []bool{false, true} {
		name, n := "plain", newNetwork(b, nil)
		if secure {
			name, n = "tls", newNetwork(b, newCA(b))
		}
		w := n.Serve("w1", echo)
		b.Run(name+"/message", func(b *testing.B) {
			many(b, func() error {
				a, err := n.fabric.Send(ctx, w.Member, &fabric.Message{Method: http.MethodPost, URI: "/worker/order/claim", Body: body})
				if err == nil && len(a.Body) != len(body) {
					err = fmt.Errorf("%d bytes", len(a.Body))
				}
				return err
			})
		})
		b.Run(name+"/request", func(b *testing.B) {
			measure(b, func() (*http.Response, error) { return n.fabric.Call(ctx, w.Member, request(body)) })
		})
	}
}

// BenchmarkAsk measures requests for quotes to two and six workers, as messages and as requests.
func BenchmarkAsk(b *testing.B) {
	n := newNetwork(b, nil)
	members := quoters(n, "w1", "w2", "w3", "w4", "w5", "w6")
	order := &bourse.Order{ID: bourse.NewOrderID(), Regions: []bourse.Choice{{"gru"}}, Config: bourse.Config{Image: "host"}}
	for _, workers := range []int{2, 6} {
		for name, ask := range map[string]func(context.Context, func(bourse.Quote)){
			"messages": func(ctx context.Context, one func(bourse.Quote)) { n.fabric.Ask(ctx, members[:workers], order, one) },
			"requests": func(ctx context.Context, one func(bourse.Quote)) {
				send := func(ctx context.Context, to bourse.Member, m *fabric.Message) (fabric.Answer, error) {
					return fabric.SendByCall(ctx, n.fabric.Call, to, m)
				}
				fabric.AskAll(ctx, send, members[:workers], order, one)
			},
		} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				many(b, func() error {
					ctx, cancel := context.WithTimeout(b.Context(), time.Second)
					defer cancel()
					got := 0
					if ask(ctx, func(bourse.Quote) { got++ }); got != workers {
						return fmt.Errorf("%d of %d answered", got, workers)
					}
					return nil
				})
			})
		}
	}
}

// quoters starts workers that answer every order.
func quoters(n *network, ids ...bourse.WorkerID) (members []bourse.Member) {
	for _, id := range ids {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var o bourse.Order
			if err := fabric.ReadBody(w, r, &o); err != nil {
				fabric.WriteFailure(w, err)
				return
			}
			fabric.WriteBody(w, bourse.Quote{Worker: id, Region: "gru", Accounts: []bourse.Account{{Resource: "cpu", Total: 8000}}})
		})
		members = append(members, n.Serve(id, h).Member)
	}
	return members
}

// BenchmarkStream measures a command's concurrent input and output, a megabyte in each direction
// per iteration, in frames on loopback.
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
			s, err := fabrictest.Attach(b.Context(), n.fabric, w.Member, "148e21ea1d5389", fabric.ExecStart{Command: []string{"cat"}, Stdin: true})
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
