package tasks

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taskProtocols lists the protocols that programs of warm machines can use.
var taskProtocols = []bourse.TaskProtocol{bourse.TaskHTTP, bourse.TaskFrames}

// host contains the tasks of a worker. Its machines are only records, and the tests
// themselves run the programs of warm machines.
type host struct {
	t testing.TB
	*Tasks
	store *store.Store
	fault atomic.Pointer[func() error] // called before each commit
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{t: t}
	s, err := store.Open(store.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Fault: func(stage store.FaultStage, _ uint64) error {
		if fault := h.fault.Load(); fault != nil && stage == store.FaultBefore {
			return (*fault)()
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	self := store.Identity{Worker: "w1", Tag: 1, Region: "gru", CreatedAt: time.Now().UTC()}
	st := state.New(self, s, slog.New(slog.DiscardHandler))
	h.store = s
	judge := &admit.Host{
		Worker: self.Worker, Tag: self.Tag, Region: self.Region, Load: func() float64 { return 0 }, SpaceError: s.SpaceError,
		Ledger: admit.Ledger{Totals: bourse.Amounts{
			{Resource: bourse.ResourceCPU, Amount: 8000}, {Resource: bourse.ResourceMemory, Amount: 4096}, {Resource: "slots", Amount: 10},
		}, Shared: 16},
	}
	judge.Labels.Store(&admit.Labels{})
	h.Tasks = New(st, judge, nil, nil, nil)
	ctx, stop := context.WithCancel(context.Background())
	st.SetContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		st.Wait()
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// place records a started machine.
func (h *host) place(change ...func(*bourse.Order)) bourse.Machine {
	h.t.Helper()
	o := bourse.Order{Config: bourse.Config{
		Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"run"}}, Guest: &bourse.Guest{MemoryMB: 64},
		Restart: &bourse.Restart{Policy: bourse.RestartNo},
	}}
	for _, f := range change {
		f(&o)
	}
	if err := o.Config.Normalize(); err != nil {
		h.t.Fatalf("normalize: %v", err)
	}
	now := time.Now().UTC()
	m := bourse.Machine{
		ID: bourse.NewMachineID(h.host.Tag), Name: "m-" + strconv.FormatInt(now.UnixNano(), 36), App: "web", AppID: "01", Worker: h.host.Worker, Region: h.host.Region,
		Instance: bourse.NewInstanceID(), Config: o.Config, CreatedAt: now, UpdatedAt: now,
	}
	m.Boot.Number = 1
	for _, m.State = range []bourse.State{bourse.StateStarting, bourse.StateStarted} {
		if err := h.state.Commit(h.t.Context(), m.ID, func(tx *store.Tx) error { return tx.PutMachine(&m) }); err != nil {
			h.t.Fatal(err)
		}
	}
	return m
}

func (h *host) get(id bourse.MachineID) bourse.Machine {
	h.t.Helper()
	m, err := h.state.Machine(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// cancel cancels an order as a worker does.
func (h *host) cancel(ctx context.Context, id bourse.OrderID) error {
	err := h.store.Update(ctx, func(tx *store.Tx) error {
		rec, ok, err := tx.Order(id)
		switch {
		case err != nil:
			return err
		case ok && rec.Task != nil:
			return Cancel(tx, &rec)
		}
		return tx.PutOrder(store.OrderRecord{ID: id, At: time.Now().UTC(), Canceled: true})
	})
	h.Withdraw(id)
	return err
}

// result claims a task's order, and fails the test unless the order is filled.
func (h *host) result(ctx context.Context, o *bourse.Order) *bourse.TaskResult {
	h.t.Helper()
	fill, refusal, err := h.Claim(ctx, &bourse.Claim{Order: *o})
	if err != nil || refusal != nil || fill.Task == nil {
		h.t.Fatalf("claim: %+v, refusal %+v, error %v", fill, refusal, err)
	}
	return fill.Task
}

// slots returns the number of committed slots, once everything submitted to the store
// is durable.
func (h *host) slots() int64 {
	h.t.Helper()
	return h.committed().Of("slots")
}

func (h *host) committed() (committed bourse.Amounts) {
	h.t.Helper()
	if err := h.store.Sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.store.View(func(tx *store.Tx) (err error) {
		committed, err = tx.Committed()
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return committed
}

// openTasks returns the orders of tasks that are recorded as in progress.
func (h *host) openTasks() []bourse.OrderID {
	h.t.Helper()
	var out []bourse.OrderID
	if err := h.store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			out = append(out, o.ID)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return out
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
				h.t.Errorf("oversold: %s used %d of %d", a.Resource, a.Used, a.Total)
			}
		}
		return tx.Verify()
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func ended(r *bourse.TaskResult) string {
	return string(r.End) + " " + strconv.Itoa(r.ExitCode) + " " + string(r.Answer)
}
