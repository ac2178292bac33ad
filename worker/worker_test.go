package worker

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// TestMain limits the tests to one processor. Before Go 1.27, timers that two threads run at the same time in one
// synctest bubble share the race detector's state for a goroutine, which can crash the race detector's C code
// (golang/go#78156). Daemons have many tickers, so this happened about once in twenty runs.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

// byAddress allows cmp to compare machines' addresses.
var byAddress = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// host is a host for tests: a directory and an in-memory driver that outlive the
// daemons started on the host.
type host struct {
	t     testing.TB
	dir   string
	mem   *drivertest.Memory
	setup func(*Config)
	rig   *rig // nil if the host cannot run images

	*Worker
	stop func()
	done chan error
}

// newHost returns a host with a started worker.
func newHost(t testing.TB, setup func(*Config)) *host {
	t.Helper()
	h := newHostDown(t, setup)
	h.start(nil)
	return h
}

func newHostDown(t testing.TB, setup func(*Config)) *host {
	t.Helper()
	h := &host{t: t, dir: hostDir(t), mem: drivertest.NewMemory(), setup: setup}
	t.Cleanup(func() { h.crash() })
	return h
}

// hostDir creates a host's directory, in memory if the system supports that. Files survive the death of a daemon, so
// tests need not wait for a disk. Benchmarks use the disk.
func hostDir(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	_, isTest := t.(*testing.T)
	if info, err := os.Stat(memory); isTest && err == nil && info.IsDir() {
		t.Setenv("TMPDIR", memory)
	}
	return t.TempDir()
}

func testLog(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return slog.New(slog.DiscardHandler)
}

// start starts the daemon and waits until it has recovered.
func (h *host) start(fault func(store.FaultStage, uint64) error) {
	h.t.Helper()
	if err := h.tryStart(fault); err != nil {
		h.t.Fatalf("start the worker: %v", err)
	}
}

func (h *host) tryStart(fault func(store.FaultStage, uint64) error) error {
	cfg := Config{
		Dir: h.dir, ID: "w1", Region: "gru", Driver: h.mem.Driver(), Log: testLog(h.t), Fault: fault,
		Capacity: Capacity{CPUs: 8, Memory: 4096, Disk: 1000, Countables: map[string]int64{"slots": 10}, Labels: map[string]string{"arch": "amd64"}},
	}
	if h.setup != nil {
		h.setup(&cfg)
	}
	w, err := Open(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.Worker, h.stop, h.done = w, cancel, make(chan error, 1)
	go func() { h.done <- w.Run(ctx) }()
	select {
	case <-w.Recovered():
		return nil
	case err := <-h.done:
		cancel()
		h.done <- err
		h.crash()
		return err
	}
}

// crash stops the daemon without any notification. The driver's programs continue to
// run, and the next daemon gets a new driver.
func (h *host) crash() {
	if h.Worker == nil {
		return
	}
	h.stop()
	<-h.done
	_ = h.Close() // closing a faulty store may return an error
	h.Worker = nil
}

// run makes an order's program consist of these words, which the in-memory driver executes.
func run(words ...string) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Init.Exec = words }
}

func newOrder(t testing.TB, change ...func(*bourse.Order)) *bourse.Order {
	t.Helper()
	o := &bourse.Order{
		ID:      bourse.NewOrderID(),
		App:     bourse.App{Name: "web", ID: "01", Org: "personal", CreatedAt: time.Unix(1, 0).UTC()},
		Regions: []bourse.Choice{{"gru"}},
		Config: bourse.Config{
			Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"run"}}, Guest: &bourse.Guest{MemoryMB: 64},
			Restart: &bourse.Restart{Policy: bourse.RestartNo},
		},
	}
	for _, f := range change {
		f(o)
	}
	if err := o.Config.Normalize(); err != nil {
		t.Fatalf("normalize: %v", err)
	}
	return o
}

// place claims an order and fails the test unless it is filled.
func (h *host) place(change ...func(*bourse.Order)) bourse.Machine {
	h.t.Helper()
	fill, refusal, err := h.claim(h.t.Context(), &bourse.Claim{Order: *newOrder(h.t, change...)})
	if err != nil || refusal != nil {
		h.t.Fatalf("claim: refusal %+v, error %v", refusal, err)
	}
	return fill.Machine
}

// reaches waits until a machine is in a state.
func (h *host) reaches(id bourse.MachineID, want bourse.State) bourse.Machine {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	m, err := h.state.AwaitMachine(ctx, id, func(m *bourse.Machine) bool { return m.State == want })
	if err != nil {
		h.t.Fatalf("machine %s is %s and never became %s: %v", id, m.State, want, err)
	}
	return m
}

func (h *host) get(id bourse.MachineID) bourse.Machine {
	h.t.Helper()
	m, err := h.state.Machine(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("machine %s: %v", id, err)
	}
	return m
}

// must fails the test if the call returned an error.
func (h *host) must(reply fabric.ActReply, err error) bourse.Machine {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	return reply.Machine
}

// verify checks the properties that a store must have at any time.
func (h *host) verify() {
	h.t.Helper()
	err := h.store.View(func(tx *store.Tx) error {
		committed, err := tx.Committed()
		if err != nil {
			return err
		}
		for _, a := range h.host.Ledger.Accounts(committed) {
			if a.Used > a.Total {
				err = errors.Join(err, bourse.Errorf(bourse.CodeInternal, "oversold: %s used %d of %d", a.Resource, a.Used, a.Total))
			}
		}
		return errors.Join(err, tx.Verify())
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// story returns a machine's events as "type/state", oldest first.
func story(m bourse.Machine) []string {
	out := []string{}
	for _, e := range slices.Backward(m.LastEvents) {
		out = append(out, string(e.Type)+"/"+string(e.State))
	}
	return out
}
