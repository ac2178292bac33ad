package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/tuning"
	"github.com/bourse-dev/bourse/machinesapi"
)

// echoSubject is where the floor's responder listens.
const echoSubject = "bench.echo"

// echo answers requests with what they bring, until its standard input ends:
// the other end of the floor, a process of its own.
func echo(url string) error {
	nc, err := client.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = nc.Subscribe(echoSubject, func(m *client.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// startEcho starts the responder.
func startEcho(h *harness, url string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "-echo", url) //nolint:noctx // it ends with its input
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	h.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	_, err = out.Read(make([]byte, 16))
	return err
}

// benchMatch: an order matched, claimed (on disk) and its task answered by a
// warm program that speaks frames (-task-protocol http compares), against a
// request and its echo over the same NATS server.
// Over NATS and over the direct fabric, with one client and with 16; from a
// broker's place, and through the API.
func benchMatch(ctx context.Context, lab *Lab, out Figures) error {
	// This process stands in a broker's place: it has as many processors, and
	// paces itself like one.
	before := debug.SetGCPercent(-1)
	debug.SetGCPercent(before)
	defer debug.SetGCPercent(before)
	tuning.RuntimeOfServer()
	return inHarness(ctx, lab, func(h *harness) error {
		program, err := buildIncrement(ctx, lab)
		if err != nil {
			return err
		}
		over, err := taskMarket(h, lab, program, true)
		if err != nil {
			return err
		}
		plain, err := taskMarket(h, lab, program, false)
		if err != nil {
			return err
		}
		if err := startEcho(h, over.nats); err != nil {
			return err
		}
		floor, err := newFloor(h, over.nats)
		if err != nil {
			return err
		}
		ways := []way{
			{"nats_match", over.match}, {"direct_match", plain.match}, {"nats_task", over.call}, {"direct_task", plain.call},
		}
		if err := oneClient(ctx, out, floor.request, ways); err != nil {
			return err
		}
		if err := sixteen(out, floor, ways); err != nil {
			return err
		}
		return noFit(ctx, out, over)
	})
}

// natsClients is how many clients there are at once.
const natsClients = 16

// natsFloor is what NATS takes for a request and its echo: by clients of their
// own, and by callers that share a connection, whose messages then share
// system calls.
type natsFloor struct{ free chan *client.Conn }

func newFloor(h *harness, url string) (*natsFloor, error) {
	f := &natsFloor{free: make(chan *client.Conn, natsClients)}
	for range natsClients {
		nc, err := client.Connect(url)
		if err != nil {
			return nil, err
		}
		h.Cleanup(nc.Close)
		f.free <- nc
	}
	return f, nil
}

func (f *natsFloor) request() error {
	nc := <-f.free
	defer func() { f.free <- nc }()
	_, err := nc.Request(echoSubject, payload, 5*time.Second)
	return err
}

// shared returns a connection for all.
func (f *natsFloor) shared() func() error {
	nc := <-f.free
	f.free <- nc
	return func() error { _, err := nc.Request(echoSubject, payload, 5*time.Second); return err }
}

// payload is what the task is asked, and the floor's echo.
var payload = json.RawMessage(`{"N":41}`)

// way is one way to have a task done.
type way struct {
	name string
	do   func() error
}

// insist repeats what is refused, and counts that: both workers may be full
// when they are asked, one after the other.
func (w way) insist(refused *atomic.Int64) error {
	for {
		err := w.do()
		if bourse.CodeOf(err) != bourse.CodeInsufficient {
			return err
		}
		refused.Add(1)
	}
}

func oneClient(ctx context.Context, out Figures, floor func() error, ways []way) error {
	const rounds = 500
	var bare samples
	took := make([]samples, len(ways))
	for range rounds {
		breathe(ctx)
		if err := bare.measure(floor); err != nil {
			return err
		}
		for i, w := range ways {
			breathe(ctx)
			if err := took[i].measure(w.do); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	out["floor_nats_us"] = us(bare.quantile(0.5))
	for i, w := range ways {
		out[w.name+"_p50_us"] = us(took[i].quantile(0.5))
		out[w.name+"_p50_ratio"] = us(took[i].quantile(0.5)) / us(bare.quantile(0.5))
	}
	return nil
}

func sixteen(out Figures, floor *natsFloor, ways []way) error {
	const clients, rounds, each = natsClients, 3, 4000
	var bare, shared []float64
	rates, refused := make([][]float64, len(ways)), make([]atomic.Int64, len(ways))
	for range rounds {
		rate, err := together(clients, 5*each, func(int) error { return floor.request() })
		if err != nil {
			return err
		}
		bare = append(bare, rate)
		one := floor.shared()
		if rate, err = together(clients, 5*each, func(int) error { return one() }); err != nil {
			return err
		}
		shared = append(shared, rate)
		for i, w := range ways {
			rate, err := together(clients, each, func(int) error { return w.insist(&refused[i]) })
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	out["floor_nats_c16_rps"], out["floor_nats_shared_c16_rps"] = median(bare), median(shared)
	for i, w := range ways {
		out[w.name+"_c16_rps"] = median(rates[i])
		out[w.name+"_c16_ratio"] = median(rates[i]) / median(bare)
		out[w.name+"_c16_refused_per_1k"] = 1000 * float64(refused[i].Load()) / (rounds * each)
	}
	return nil
}

// noFit: how long it takes to hear that no one has so many slots.
func noFit(ctx context.Context, out Figures, m *taskYard) error {
	var took samples
	for range 1000 {
		breathe(ctx)
		err := took.measure(func() error {
			_, err := m.api.RunTask(ctx, app, machinesapi.RunTask{
				Task: taskName, Payload: payload, Region: "gru", Requirements: bourse.Requirements{"slots": {Count: 1000}},
			}, "")
			return err
		})
		if bourse.CodeOf(err) != bourse.CodeInsufficient {
			return fmt.Errorf("an order for 1000 slots: %w", err)
		}
	}
	out["no_fit_ms"] = ms(took.quantile(0.99))
	out["no_fit_p50_ms"] = ms(took.quantile(0.5))
	return nil
}
