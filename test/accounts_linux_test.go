package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// storm is a cluster over NATS on which clients create tasks, machines and reservations
// concurrently.
type storm struct {
	t       *testing.T
	nats    *natsd
	workers []*server
	brokers []*server
	apis    []*machinesapi.Client
	warm    map[bourse.MachineID]bool // machines that are warm for a task, one on each worker
	left    chan bourse.MachineID     // machines that another goroutine must destroy

	tasks, refused, failed, machines, reserved atomic.Int64
}

// callerTime limits how long a call may take. It is the call's deadline plus a margin.
const callerTime = 20 * time.Second

// TestAccounts creates and ends tasks, machines and reservations while workers, brokers and
// the NATS server between them are killed. Every caller must get an answer in time.
// Afterwards, each worker's ledger must be the same as before.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	before := s.accounts()
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() { s.during(ctx, func(r *rand.Rand) error { return s.task(r, i) }) })
	}
	for range 2 {
		callers.Go(func() { s.during(ctx, s.machine) })
		callers.Go(func() { s.during(ctx, s.reservation) })
	}
	s.kill()
	stop()
	callers.Wait()
	t.Logf("%d tasks answered, %d machines, %d reservations; %d refused, %d other failures",
		s.tasks.Load(), s.machines.Load(), s.reserved.Load(), s.refused.Load(), s.failed.Load())
	if s.tasks.Load() < 200 || s.machines.Load() < 10 || s.reserved.Load() < 5 {
		t.Errorf("%d tasks, %d machines and %d reservations succeeded, want at least 200, 10 and 5 for a meaningful test", s.tasks.Load(), s.machines.Load(), s.reserved.Load())
	}
	eventually(t, waitTimeout, "all machines except the warm ones are destroyed", s.clear)
	eventually(t, waitTimeout, "each worker's ledger matches its machines", func() error {
		if d := cmp.Diff(before, s.accounts()); d != "" {
			return errors.New(d)
		}
		return nil
	})
	for i := range 20 { // all capacity must be usable again
		if err := s.task(rand.New(rand.NewPCG(1, uint64(i))), i); err != nil {
			t.Errorf("task after the load has ended: %v", err)
		}
	}
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{t: t, nats: startNATS(t, "127.0.0.1"), warm: map[bourse.MachineID]bool{}, left: make(chan bourse.MachineID, 100)}
	program := filepath.Join(t.TempDir(), "increment")
	if out, err := exec.Command("go", "build", "-o", program, "../examples/increment").CombinedOutput(); err != nil {
		t.Fatalf("build increment: %v\n%s", err, out)
	}
	for _, name := range []string{"b1", "b2"} {
		b := newServer(t, name, "serve", "broker", "--name", name, "--listen", "127.0.0.1:0", "--nats", s.nats.url())
		s.brokers = append(s.brokers, b)
	}
	for _, name := range []string{"w1", "w2"} {
		w, _ := newWorker(t, name, "gru", "--resource", "slots=10", "--nats", s.nats.url())
		s.workers = append(s.workers, w)
	}
	startAll(t, append(s.workers, s.brokers...)...)
	for _, b := range s.brokers {
		b.Args = append(b.Args, "--listen", b.API)
		s.apis = append(s.apis, client(t, b))
	}
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, s.apis...) })
	for _, w := range s.workers {
		in := on(w.Name, sleeper("gru", program))
		in.Config.Init = bourse.Init{Cmd: []string{program}}
		in.Config.Task = &bourse.TaskConfig{Name: "increment", Concurrency: 10}
		s.warm[create(t, s.apis[0], in).ID] = true
	}
	return s
}

// during calls an operation repeatedly until ctx is done. Errors are only counted, because refusals
// and unavailable servers are expected. Each call must end in time.
func (s *storm) during(ctx context.Context, do func(*rand.Rand) error) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		select {
		case id := <-s.left:
			err = s.destroy(r, id)
		default:
			err = do(r)
		}
		if took := time.Since(began); took > callerTime {
			s.t.Errorf("a call took %s, want at most %s: %v", took, callerTime, err)
		}
		switch {
		case err == nil:
		case bourse.CodeOf(err) == bourse.CodeInsufficient:
			s.refused.Add(1)
		default:
			s.failed.Add(1)
			pause(ctx, 5*time.Millisecond) // back off, like other clients
		}
	}
}

func (s *storm) api(r *rand.Rand) *machinesapi.Client { return s.apis[r.IntN(len(s.apis))] }

func (s *storm) task(r *rand.Rand, n int) error {
	order := bourse.OrderID("")
	if r.IntN(2) == 0 {
		order = bourse.NewOrderID()
	}
	reply, err := s.api(r).RunTask(s.t.Context(), app, machinesapi.RunTask{
		Task: "increment", Payload: fmt.Appendf(nil, `{"N":%d,"SleepSec":0.00%d}`, n, r.IntN(5)), Region: "gru",
		Requirements: bourse.Requirements{"slots": {Count: 1 + r.Int64N(2)}}, Timeout: bourse.Duration(5 * time.Second),
	}, order)
	if err == nil && reply.OK {
		if string(reply.Bytes()) != strconv.Itoa(n+1) {
			s.t.Errorf("task with payload %d was answered with %s, want %d", n, reply.Bytes(), n+1)
		}
		s.tasks.Add(1)
	}
	return err
}

// machine creates a machine and destroys it, possibly through another broker.
func (s *storm) machine(r *rand.Rand) error {
	in := sleeper("gru", "")
	in.Config.Requirements = bourse.Requirements{"slots": {Count: 1}}
	m, err := s.api(r).Create(s.t.Context(), app, in, "")
	if err != nil {
		return err
	}
	s.machines.Add(1)
	return s.destroy(r, m.ID)
}

// destroy destroys a machine. If that fails, it leaves the machine to another goroutine,
// because machines whose worker is down would otherwise occupy more and more slots.
func (s *storm) destroy(r *rand.Rand, id bourse.MachineID) error {
	err := s.api(r).Destroy(s.t.Context(), app, id, machinesapi.DestroyMachine{Force: true}, "")
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		select {
		case s.left <- id:
		default: // clear destroys it later
		}
	}
	return err
}

// reservation holds slots for a second or two, and then releases them, uses them, or lets
// them expire.
func (s *storm) reservation(r *rand.Rand) error {
	ttl, count := 1+r.Int64N(2), 1+r.Int64N(3)
	in := slot("", count, 1+r.Int64N(2), ttl)
	made, err := s.api(r).Reservations().Create(s.t.Context(), in)
	if err != nil {
		return err
	}
	s.reserved.Add(1)
	switch r.IntN(3) {
	case 0:
		return s.api(r).Reservations().Release(s.t.Context(), made.ID)
	case 1:
		order := sleeper("gru", "")
		order.Reservation = made.ID
		order.Config.Guest, order.Config.Requirements = in.Orders[0].Config.Guest, in.Orders[0].Config.Requirements
		m, err := s.api(r).Create(s.t.Context(), app, order, "")
		if err != nil {
			return err
		}
		return s.destroy(r, m.ID)
	}
	return nil
}

// kill kills every server once or twice, at times that depend on the progress of the load,
// and restarts it.
func (s *storm) kill() {
	s.t.Helper()
	worked := func() { // wait for progress of the load
		before := s.tasks.Load()
		within(5*time.Second, func() bool { return s.tasks.Load() > before+50 })
	}
	for round := range 2 {
		for _, victim := range append(append([]*server(nil), s.workers...), s.brokers...) {
			worked()
			if err := victim.Kill(); err != nil {
				s.t.Fatal(err)
			}
			if err := victim.Start(); err != nil {
				s.t.Fatal(err)
			}
		}
		worked()
		s.nats.kill()
		failed := s.failed.Load()
		within(5*time.Second, func() bool { return round == 0 || s.failed.Load() > failed+100 }) // wait until calls fail
		s.nats.start()
	}
	worked()
}

// clear destroys the machines that the storm has left behind.
func (s *storm) clear() error {
	list, silent, err := s.apis[0].Machines(s.t.Context(), app, machinesapi.ListMachines{})
	if err != nil || len(silent) > 0 {
		return errors.Join(err, fmt.Errorf("workers %v did not answer", silent))
	}
	left := 0
	for _, m := range list {
		if !s.warm[m.ID] && m.State != bourse.StateDestroyed {
			left++
			err = errors.Join(err, s.apis[0].Destroy(s.t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, ""))
		}
	}
	if left > 0 || err != nil {
		return errors.Join(err, fmt.Errorf("%d machines remain, want none", left))
	}
	return nil
}

// accounts returns the used and held amounts of each worker's resources.
func (s *storm) accounts() map[string]int64 {
	s.t.Helper()
	out := map[string]int64{}
	for _, w := range s.workers {
		eventually(s.t, waitTimeout, w.Name+" answers", func() error {
			worker, err := s.apis[0].Worker(s.t.Context(), bourse.WorkerID(w.Name))
			if err != nil || worker.Facts == nil {
				return errors.Join(err, errors.New("the worker reports no facts: "+worker.Error))
			}
			used := map[string]int64{}
			for _, a := range worker.Facts.Accounts {
				used[w.Name+" "+string(a.Resource)] = a.Used
				used[w.Name+" "+string(a.Resource)+" held"] = a.Held
			}
			maps.Copy(out, used)
			return nil
		})
	}
	return out
}
