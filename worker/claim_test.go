package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

func TestRefusalsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		h.place(func(o *bourse.Order) { o.Name = "taken" })
		for name, c := range map[string]struct {
			change func(*bourse.Order)
			reason bourse.RefusalReason
			what   string
		}{
			"memory":            {func(o *bourse.Order) { o.Config.Guest.MemoryMB = 5000 }, bourse.RefusedResource, "memory"},
			"cpus":              {func(o *bourse.Order) { *o.Config.Guest = bourse.Guest{CPUKind: "performance", CPUs: 9} }, bourse.RefusedResource, "cpu"},
			"a gpu":             {func(o *bourse.Order) { o.Config.Guest.GPUKind = "a10" }, bourse.RefusedUnknown, "gpu.a10"},
			"slots":             {requires("slots", bourse.Requirement{Count: 11}), bourse.RefusedResource, "slots"},
			"unknown countable": {requires("seats", bourse.Requirement{Count: 1}), bourse.RefusedUnknown, "seats"},
			"another label":     {requires("arch", bourse.Requirement{Label: "arm64"}), bourse.RefusedLabel, "arch"},
			"unknown label":     {requires("zone", bourse.Requirement{Label: "b"}), bourse.RefusedUnknown, "zone"},
			"image":             {func(o *bourse.Order) { o.Config.Image = "nginx" }, bourse.RefusedImage, "nginx"},
			"region":            {func(o *bourse.Order) { o.Regions = []bourse.Choice{{"mad"}} }, bourse.RefusedRegion, ""},
			"name":              {func(o *bourse.Order) { o.Name = "taken" }, bourse.RefusedName, ""},
		} {
			r := h.refusalOf(newOrder(t, c.change))
			if r.Reason != c.reason || r.Resource != c.what || r.Worker != "w1" || r.Region != "gru" || r.Detail == "" {
				t.Errorf("%s: %+v, want reason %s and resource %q from w1 in gru, with a detail", name, r, c.reason, c.what)
			}
		}
		h.verify()
	})
}

// refusalOf returns the refusal of an order that is not for a warm task. It fails the
// test unless the order's quote, the check before its claim's transaction, the
// transaction, and the claim all contain the same refusal.
func (h *host) refusalOf(order *bourse.Order) bourse.Refusal {
	h.t.Helper()
	ctx := h.t.Context()
	declined := func(err error) *bourse.Refusal {
		d, _ := errors.AsType[admit.NotFilledError](err)
		return d.Refusal
	}
	quote, err := h.quote(ctx, order.ForQuote())
	if err != nil {
		h.t.Fatal(err)
	}
	_, claim, err := h.claim(ctx, &bourse.Claim{Order: *order})
	if err != nil {
		h.t.Fatal(err)
	}
	transaction := h.store.Update(ctx, func(tx *store.Tx) error {
		_, err := h.host.Take(tx, order, time.Now())
		return err
	})
	if claim == nil {
		h.t.Fatalf("order %+v was filled", order)
	}
	for by, r := range map[string]*bourse.Refusal{
		"quote": quote.Refusal, "precheck": declined(h.host.Precheck(h.store, order)), "transaction": declined(transaction),
	} {
		if diff := cmp.Diff(claim, r); diff != "" {
			h.t.Errorf("refusal (-claim +%s):\n%s", by, diff)
		}
	}
	return *claim
}

// Several claims for the last port, device, volume or name all pass the check before
// their transactions. Exactly one of them is filled.
func TestClaimsCompeteForTheLastOne(t *testing.T) {
	port := freePorts(t, 1)
	for name, c := range map[string]struct {
		setup  func(*Config)
		change func(*host) func(*bourse.Order)
		reason bourse.RefusalReason
	}{
		"port": {
			func(c *Config) { c.Ports = port },
			func(*host) func(*bourse.Order) { return func(*bourse.Order) {} }, bourse.RefusedResource,
		},
		"device": {
			func(c *Config) { c.Capacity.Devices = map[string][]string{"a10": {"example.com/gpu=0"}} },
			func(*host) func(*bourse.Order) {
				return func(o *bourse.Order) { o.Config.Guest.GPUKind, o.Config.Guest.GPUs = "a10", 1 }
			}, bourse.RefusedResource,
		},
		"volume": {
			withVolumes(volumetest.NewHost()),
			func(h *host) func(*bourse.Order) { return mounts(h.placeVolume().ID) }, bourse.RefusedVolume,
		},
		"name": {
			func(*Config) {},
			func(*host) func(*bourse.Order) { return func(o *bourse.Order) { o.Name = "one" } }, bourse.RefusedName,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				proceed := make(chan struct{})
				h := newHostDown(t, c.setup)
				h.start(func(stage store.FaultStage, _ uint64) error {
					if stage == store.FaultBefore && slow.Load() {
						<-proceed
					}
					return nil
				})
				defer h.crash()
				change := c.change(h)
				slow.Store(true)
				h.store.Submit(func(tx *store.Tx) error {
					return tx.PutOrder(store.OrderRecord{ID: bourse.NewOrderID(), Canceled: true})
				})
				synctest.Wait()
				var group sync.WaitGroup
				var filled, refused atomic.Int64
				for range 8 {
					order := newOrder(t, change)
					group.Go(func() {
						_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
						switch {
						case err != nil:
							t.Error(err)
						case refusal == nil:
							filled.Add(1)
						case refusal.Reason == c.reason:
							refused.Add(1)
						default:
							t.Errorf("refusal %+v, want %s", refusal, c.reason)
						}
					})
				}
				synctest.Wait() // until all claims wait for their transactions
				close(proceed)
				group.Wait()
				if filled.Load() != 1 || refused.Load() != 7 {
					t.Errorf("%d orders were filled and %d refused, want 1 and 7", filled.Load(), refused.Load())
				}
				h.verify()
			})
		})
	}
}

func requires(name string, r bourse.Requirement) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{name: r} }
}

func TestAProgramThatCannotStartIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		order := newOrder(t, run("missing"))
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedProgram {
			t.Fatalf("claim: %+v, %v; want a refusal that names the program", refusal, err)
		}
		all, err := h.machines.List(t.Context(), nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
		if err != nil || len(all) != 0 {
			t.Errorf("left behind: %v, %v", all, err)
		}
		q, err := h.quote(t.Context(), newOrder(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range q.Accounts {
			if a.Used != 0 {
				t.Errorf("%d of %s still taken", a.Used, a.Resource)
			}
		}
		h.verify()
	})
}

// Invariant 7 on one worker: after any number of claims and cancellations of one order, in any sequence, there is at
// most one machine, and none if the order was canceled.
func TestInvariant7OnceOnAWorker(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				h := newHost(t, nil)
				defer h.crash()
				order := newOrder(t)
				canceled := false
				var wg sync.WaitGroup
				for range 2 + rng.IntN(6) {
					delay := time.Duration(rng.IntN(3)) * time.Millisecond
					if cancel := rng.IntN(3) == 0; cancel {
						canceled = true
						wg.Go(func() {
							time.Sleep(delay)
							if _, err := h.cancel(t.Context(), order.ID); err != nil {
								t.Errorf("cancel: %v", err)
							}
						})
						continue
					}
					wg.Go(func() {
						time.Sleep(delay)
						_, _, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
						if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
							t.Errorf("claim: %v", err)
						}
					})
				}
				wg.Wait()
				if canceled { // a claim after the cancellation
					if _, r, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); err != nil || r == nil || r.Reason != bourse.RefusedCanceled {
						t.Errorf("claim after the cancellation: %+v, %v", r, err)
					}
				}
				time.Sleep(time.Minute)
				living, want := len(h.mem.Running()), 1
				if canceled {
					want = 0
				}
				if living != want {
					t.Errorf("%d machines run, want %d (canceled: %t)", living, want, canceled)
				}
				h.verify()
			})
		})
	}
}

func TestARepeatedClaimGivesTheSameMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		claim := &bourse.Claim{Order: *newOrder(t)}
		first, _, err := h.claim(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := h.claim(t.Context(), claim)
		if err != nil || !again.Repeated || again.Machine.ID != first.Machine.ID {
			t.Errorf("repeated claim: %+v, %v; want machine %s", again, err, first.Machine.ID)
		}
		if h.mem.Starts() != 1 {
			t.Errorf("%d starts, want 1", h.mem.Starts())
		}
	})
}

// Invariant 4: sixteen clients claim concurrently, with amounts of all sizes, including hostile ones, while machines
// are stopped, started and destroyed. No resource is ever oversold, and at the end the ledger matches the machines.
func TestInvariant4NeverOversold(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Capacity.Memory, c.Capacity.CPUs = 700, 2 })
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	var claimers, checker sync.WaitGroup
	checker.Go(func() {
		for ctx.Err() == nil {
			h.verify()
		}
	})
	const each = 40
	for c := range uint64(16) {
		claimers.Go(func() {
			rng := rand.New(rand.NewPCG(c, 4))
			for range each {
				id := claimOverHTTP(t, server.URL, rng)
				if id == "" {
					continue
				}
				if rng.IntN(2) == 0 {
					_, _ = h.machines.Stop(ctx, id, fabric.MachineAction{})  // may fail because the machine has just changed
					_, _ = h.machines.Start(ctx, id, fabric.MachineAction{}) // may be refused
				}
				if _, err := h.machines.Destroy(ctx, id, fabric.MachineAction{Force: true}); err != nil {
					t.Errorf("destroy: %v", err)
				}
			}
		})
	}
	claimers.Wait()
	cancel()
	checker.Wait()
	h.verify()
	free, err := h.Free()
	if err != nil || free.Of("memory") != 700 || free.Of("slots") != 10 {
		t.Errorf("free at the end: %v, %v; capacity was gained or lost", free, err)
	}
}

// claimOverHTTP claims an order with random, often nonsensical amounts, as a faulty
// client might. It returns the machine's id, or "" if the claim was not filled.
func claimOverHTTP(t *testing.T, url string, rng *rand.Rand) bourse.MachineID {
	hostile := []string{"-1", "0", "1", "64", "256", "701", "1e3", "1e300", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "0.5", `"64"`, "null"}
	pick := func() string { return hostile[rng.IntN(len(hostile))] }
	if rng.IntN(3) > 0 {
		pick = func() string { return fmt.Sprint(1 + rng.IntN(300)) }
	}
	body := fmt.Sprintf(`{"order":{"id":%q,"app":{"name":"web"},"regions":[["gru"]],"config":{"image":"host","init":{"exec":["run"]},
		"guest":{"cpu_kind":"shared","cpus":%s,"memory_mb":%s},"requirements":{"slots":%s}}}}`,
		bourse.NewOrderID(), []string{"1", pick()}[rng.IntN(2)], pick(), []string{"1", "2", pick()}[rng.IntN(3)])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+fabric.OrderClaim.Path(), bytes.NewReader(codectest.Body(t, body)))
	if err != nil {
		t.Error(err)
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("claim: %v", err)
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 {
		t.Errorf("%s answered %s", body, resp.Status)
	}
	var reply fabric.ClaimReply
	text, err := io.ReadAll(resp.Body)
	if err != nil || codec.Unmarshal(text, &reply) != nil || reply.Fill == nil {
		return ""
	}
	return reply.Fill.Machine.ID
}

// An order with a negative amount, which JSON decoding would reject, is also refused if another server sends it as
// CBOR. It must not increase the worker's capacity (invariant 4).
func TestAClaimOfANegativeAmount(t *testing.T) {
	h := newHost(t, nil)
	body, err := codec.Marshal(bourse.Claim{Order: *newOrder(t, func(o *bourse.Order) {
		o.Config.Requirements = bourse.Requirements{"slots": {Count: 1}}
	})})
	if err != nil {
		t.Fatal(err)
	}
	count := []byte("\x65Count\x01")
	if bytes.Count(body, count) != 1 {
		t.Fatalf("the encoded claim contains no count of 1: %q", body)
	}
	body = bytes.Replace(body, count, []byte("\x65Count\x28"), 1) // -9
	rec := httptest.NewRecorder()
	h.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, fabric.OrderClaim.Path(), bytes.NewReader(body)))
	if rec.Code != http.StatusBadRequest {
		t.Errorf("answered %d: %q", rec.Code, rec.Body)
	}
}
