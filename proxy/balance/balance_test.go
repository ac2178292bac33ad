package balance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

func target(list ...route.Backend) *route.Target {
	return &route.Target{App: &route.App{ID: "01", Name: "web"}, Port: workload.Port{First: 80, Last: 80}, Backends: list}
}

// single limits a machine to one request at a time.
func single(b *route.Backend) { b.Service.Concurrency = workload.Concurrency{Soft: 1, Hard: 1} }

func take(t *testing.T, b *balance.Balancer, to *route.Target, w balance.Criteria) *balance.Slot {
	t.Helper()
	slot, err := b.Acquire(t.Context(), to, w)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// table returns a table of app web with the given number of machines, which have the given hard
// limit.
func table(machines, hard int, change ...func(*bourse.Machine)) *route.Table {
	in := route.Input{Apps: []bourse.App{{Name: "web", ID: "01"}}, Domains: []string{"localhost"}}
	in.ReachableWorker = func(bourse.WorkerTag) (bourse.WorkerID, bool) { return "w", true }
	for n := range machines {
		m := bourse.Machine{ID: id(n), App: "web", AppID: "01", Worker: "w", Region: "gru", State: bourse.StateStarted, Instance: "v1", Boot: bourse.Boot{Number: 1}}
		m.Config.Image = "x"
		m.Config.Services = json.RawMessage(fmt.Sprintf(`[{"autostart":true,"ports":[{"port":80}],"concurrency":{"soft_limit":%d,"hard_limit":%d}}]`, hard, hard))
		for _, f := range change {
			f(&m)
		}
		in.Machines = append(in.Machines, m)
	}
	return route.Build(in)
}

func of(t *testing.T, table *route.Table) *route.Target {
	t.Helper()
	target, err := table.Find("web.localhost", 80)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// TestWaitersAreServedInOrder checks that a released slot wakes exactly the first waiter.
func TestWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := balance.New(balance.Config{Region: "gru"})
		to := target(backend(1, single))
		first := take(t, b, to, balance.Criteria{})
		slots := make(chan string, 4)
		held := map[string]*balance.Slot{}
		var mu sync.Mutex
		for _, name := range []string{"a", "b", "c"} {
			go func() {
				slot, err := b.Acquire(t.Context(), to, balance.Criteria{})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				held[name] = slot
				mu.Unlock()
				slots <- name
			}()
			synctest.Wait()
		}
		first.Done(nil)
		for _, want := range []string{"a", "b", "c"} {
			synctest.Wait()
			if got := <-slots; got != want || len(slots) != 0 {
				t.Fatalf("%s got the slot, want %s; %d other requests also got one", got, want, len(slots))
			}
			time.Sleep(time.Second) // virtual time; nobody else gets a slot in the meantime
			mu.Lock()
			held[want].Done(nil)
			held[want].Done(nil) // releases the slot of the waiter that is next
			mu.Unlock()
		}
		if got := b.Status(table(2, 1), ""); got.Routes[0].Machines[1].Requests != 0 || got.Routes[0].Waiting != 0 {
			t.Errorf("remaining: %+v", got)
		}
	})
}

// TestWaitingEnds checks that a request stops waiting if it is canceled, if its deadline passes, or
// if the queue is full.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := balance.New(balance.Config{Region: "gru", MaxWaitingPerApp: 2})
		to := target(backend(1, single))
		first := take(t, b, to, balance.Criteria{})
		errs := make(chan error, 2)
		left, leave := context.WithCancel(t.Context())
		late, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for _, ctx := range []context.Context{left, late} {
			go func() {
				_, err := b.Acquire(ctx, to, balance.Criteria{})
				errs <- err
			}()
		}
		synctest.Wait()
		_, err := b.Acquire(t.Context(), to, balance.Criteria{})
		if bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), "queue is full") {
			t.Errorf("a request beyond the queue's limit: %v", err)
		}
		leave()
		if err := <-errs; bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("canceled request: %v", err)
		}
		if err := <-errs; bourse.CodeOf(err) != bourse.CodeTimeout || !strings.Contains(err.Error(), "at their hard limits for 2s") {
			t.Errorf("request past its deadline: %v", err)
		}
		first.Done(nil)
		take(t, b, to, balance.Criteria{}).Done(nil)
	})
}

// TestSlotOfCanceledWaiterIsNotLost checks that, if a waiter gets a slot and is canceled at the same moment, the
// slot goes to the next waiter.
func TestSlotOfCanceledWaiterIsNotLost(t *testing.T) {
	t.Parallel()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := balance.New(balance.Config{Region: "gru"})
			to := target(backend(1, single))
			first := take(t, b, to, balance.Criteria{})
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				if slot, err := b.Acquire(ctx, to, balance.Criteria{}); err == nil {
					slot.Done(nil)
				}
			}()
			synctest.Wait()
			got := make(chan error, 1)
			go func() {
				slot, err := b.Acquire(t.Context(), to, balance.Criteria{})
				if err == nil {
					slot.Done(nil)
				}
				got <- err
			}()
			synctest.Wait()
			go leave()
			first.Done(nil)
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNoLostWakeups acquires, releases and cancels at random. No waiter may wait forever, and no machine may exceed its
// limit.
func TestNoLostWakeups(t *testing.T) {
	t.Parallel()
	const machines, hard, callers, rounds = 3, 2, 32, 60
	b := balance.New(balance.Config{Region: "gru"})
	b.Update(table(machines, hard))
	to := of(t, table(machines, hard))
	var use [machines]atomic.Int32
	var served atomic.Int32
	var callersDone sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := range callers {
		callersDone.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1)) //nolint:gosec // not security-sensitive
			for range rounds {
				ctx, leave := context.WithCancel(ctx)
				if r.IntN(4) == 0 {
					go leave()
				}
				w := balance.Criteria{}
				if r.IntN(3) == 0 {
					w.Instance, w.Only = id(r.IntN(machines)), true
				}
				slot, err := b.Acquire(ctx, to, w)
				if err != nil {
					if bourse.CodeOf(err) != bourse.CodeCanceled {
						t.Errorf("%v", err)
					}
					leave()
					continue
				}
				served.Add(1)
				var at int
				if _, err := fmt.Sscanf(string(slot.Backend().Machine[6:]), "%x", &at); err != nil {
					t.Error(err)
				}
				if got := use[at].Add(1); got > hard {
					t.Errorf("machine %d has %d requests", at, got)
				}
				if r.IntN(8) == 0 {
					b.Update(table(machines, hard))
				}
				use[at].Add(-1)
				slot.Done(nil)
				leave()
			}
		})
	}
	callersDone.Wait()
	if ctx.Err() != nil {
		t.Fatal("a request waited for 30 s")
	}
	status := b.Status(table(machines, hard), "web")
	if status.Routes[0].Waiting != 0 {
		t.Errorf("%d requests are waiting", status.Routes[0].Waiting)
	}
	for _, m := range status.Routes[0].Machines {
		if m.Requests != 0 {
			t.Errorf("machine %s has %d requests", m.Machine, m.Requests)
		}
	}
	t.Logf("%d of %d were served", served.Load(), callers*rounds)
}

// TestUpdate checks that a new machine, a higher limit, or the deletion of the app affects waiters immediately.
func TestUpdate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next *route.Table
		want string
	}{
		"another machine": {table(2, 1), ""},
		"a higher limit":  {table(1, 2), ""},
		"the same limit":  {table(1, 1), "waits"},
		"gone":            {route.Build(route.Input{}), "app web no longer serves port 80"},
		"cordoned":        {table(1, 1, func(m *bourse.Machine) { m.Cordoned = true }), "no machine of app web is available: 1: it is cordoned"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := balance.New(balance.Config{Region: "gru"})
			now := table(1, 1)
			b.Update(now)
			first := take(t, b, of(t, now), balance.Criteria{})
			got := make(chan error, 1)
			go func() {
				_, err := b.Acquire(t.Context(), of(t, now), balance.Criteria{})
				got <- err
			}()
			synctest.Wait()
			b.Update(c.next)
			synctest.Wait()
			text := "waits"
			select {
			case err := <-got:
				text = ""
				if err != nil {
					text = err.Error()
				}
			default:
				first.Done(nil)
				<-got
			}
			if text != c.want {
				t.Errorf("%s: %q, want %q", name, text, c.want)
			}
		})
	}
}

// TestOutdatedTargetUsesCurrentMachines checks that a request with an outdated target uses the target's current
// machines.
func TestOutdatedTargetUsesCurrentMachines(t *testing.T) {
	t.Parallel()
	b := balance.New(balance.Config{Region: "gru"})
	old := of(t, table(1, 1))
	b.Update(table(1, 1, func(m *bourse.Machine) { m.Instance = "v2" }))
	if got := take(t, b, old, balance.Criteria{}).Backend().Instance; got != "v2" {
		t.Errorf("version %s", got)
	}
	b.Update(new(route.Table))
	if _, err := b.Acquire(t.Context(), old, balance.Criteria{}); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("target without machines: %v", err)
	}
}

// TestOthersCount checks that other proxies' requests count, and that the balancer notices when they end.
func TestOthersCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var others atomic.Int32
		others.Store(1)
		b := balance.New(balance.Config{Region: "gru", Others: func(bourse.MachineID) int { return int(others.Load()) }})
		to := target(backend(1, single))
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			others.Store(0)
		}()
		take(t, b, to, balance.Criteria{}).Done(nil)
		if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+200*time.Millisecond {
			t.Errorf("after %s", took)
		}
	})
}

// TestWaiterDoesNotBlockLaterOnes checks that a waiter for a specific machine does not block later waiters
// that can use another machine.
func TestWaiterDoesNotBlockLaterOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var others atomic.Int32
		others.Store(1)
		b := balance.New(balance.Config{Region: "gru", Others: func(m bourse.MachineID) int {
			if m == id(2) {
				return int(others.Load())
			}
			return 0
		}})
		to := target(backend(1, single), backend(2, single))
		first := take(t, b, to, balance.Criteria{})
		only := make(chan error, 1)
		go func() {
			_, err := b.Acquire(t.Context(), to, balance.Criteria{Instance: id(1), Only: true})
			only <- err
		}()
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			others.Store(0)
		}()
		if got := take(t, b, to, balance.Criteria{}).Backend().Machine; got != id(2) {
			t.Errorf("machine %s", got)
		}
		first.Done(nil)
		if err := <-only; err != nil {
			t.Error(err)
		}
	})
}

var errBroken = errors.New("connection refused")

// TestSuspicion checks that a failed machine is the last choice until it answers or restarts, and that each further
// failure makes it the last choice for longer.
func TestSuspicion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := balance.New(balance.Config{Region: "gru"})
		one, other := backend(1), backend(2, in("syd"))
		chosen := func(list ...route.Backend) bourse.MachineID {
			t.Helper()
			slot := take(t, b, target(list...), balance.Criteria{})
			defer slot.Done(context.Canceled)
			return slot.Backend().Machine
		}
		fail := func(list ...route.Backend) {
			t.Helper()
			time.Sleep(time.Millisecond)
			take(t, b, target(list...), balance.Criteria{}).Done(errBroken)
		}
		slow := take(t, b, target(one), balance.Criteria{})
		fail(one)
		slow.Done(nil) // this request began before the failure, so its success does not count
		if got := chosen(one, other); got != other.Machine {
			t.Errorf("after a failure %s is chosen", got)
		}
		time.Sleep(time.Second)
		if got := chosen(one, other); got != one.Machine {
			t.Errorf("a second later %s is chosen", got)
		}
		fail(one)
		time.Sleep(1500 * time.Millisecond)
		if got := chosen(one, other); got != other.Machine {
			t.Errorf("1.5 s after the second failure %s is chosen", got)
		}
		again := backend(1, func(b *route.Backend) { b.Boot++ })
		if got := chosen(again, other); got != one.Machine {
			t.Errorf("after its next start %s is chosen", got)
		}
		take(t, b, target(one), balance.Criteria{}).Done(nil) // the only machine is tried, and it answers
		if got := chosen(one, other); got != one.Machine {
			t.Errorf("after a reply %s is chosen", got)
		}
		together := []*balance.Slot{take(t, b, target(one), balance.Criteria{}), take(t, b, target(one), balance.Criteria{}), take(t, b, target(one), balance.Criteria{})}
		for _, slot := range together {
			slot.Done(errBroken)
		}
		time.Sleep(time.Second)
		if got := chosen(one, other); got != one.Machine {
			t.Errorf("a second after three simultaneous failures, which must count as one, %s is chosen", got)
		}
	})
}

// TestOneBadRequestDoesNotMarkABusyMachine checks that a failed request does not count against a
// machine that has answered another request since the failed one began.
func TestOneBadRequestDoesNotMarkABusyMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := balance.New(balance.Config{Region: "gru"})
		one, other := backend(1), backend(2, in("syd"))
		bad := take(t, b, target(one), balance.Criteria{})
		time.Sleep(time.Second)
		take(t, b, target(one), balance.Criteria{}).Done(nil)
		time.Sleep(time.Minute)
		bad.Done(errBroken)
		slot := take(t, b, target(one, other), balance.Criteria{})
		defer slot.Done(nil)
		if got := slot.Backend().Machine; got != one.Machine {
			t.Errorf("%s is chosen, want the machine that answered", got)
		}
	})
}

// TestWorkersAreSuspected checks that, after two of a worker's machines have failed, the worker's other machines are
// less preferred, too.
func TestWorkersAreSuspected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := func(w bourse.WorkerID) func(*route.Backend) { return func(b *route.Backend) { b.Worker = w } }
		b := balance.New(balance.Config{Region: "gru"})
		one, two, three, far := backend(1, on("w")), backend(2, on("w")), backend(3, on("w")), backend(4, in("syd"))
		for i, m := range []route.Backend{one, two} {
			slot := take(t, b, target(three, far), balance.Criteria{})
			if got := slot.Backend().Machine; got != three.Machine {
				t.Errorf("after %d failures %s is chosen", i, got)
			}
			slot.Done(context.Canceled)
			take(t, b, target(m), balance.Criteria{}).Done(errBroken)
		}
		slot := take(t, b, target(three, far), balance.Criteria{})
		if got := slot.Backend().Machine; got != far.Machine {
			t.Errorf("%s is chosen", got)
		}
		slot.Done(nil)
		time.Sleep(time.Millisecond)
		take(t, b, target(three), balance.Criteria{}).Done(nil)
		slot = take(t, b, target(three, far), balance.Criteria{})
		if got := slot.Backend().Machine; got != three.Machine {
			t.Errorf("after a reply %s is chosen", got)
		}
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := balance.New(balance.Config{Region: "gru", Others: func(m bourse.MachineID) int {
		if m == id(3) {
			return 2
		}
		return 0
	}})
	states := []bourse.State{bourse.StateStarted, bourse.StateStarted, bourse.StateStopped, bourse.StateStarted, bourse.StateDestroying}
	n := 0
	now := table(5, 2, func(m *bourse.Machine) { m.State, m.Cordoned = states[n], n == 1; n++ })
	b.Update(now)
	slot := take(t, b, of(t, now), balance.Criteria{Instance: id(0)})
	var got []string
	status := b.Status(now, "")
	for _, m := range status.Routes[0].Machines {
		got = append(got, fmt.Sprintf("%s %s %d+%d/%d: %s %s", m.Machine, m.State, m.Requests, m.OtherRequests, m.Hard, m.Use, m.Why))
	}
	want := []string{
		"00000000000000 started 1+0/2: yes ",
		"00000100000001 started 0+0/2: no it is cordoned",
		"00000200000002 stopped 0+0/2: start it is stopped: a request starts it",
		"00000300000003 started 0+2/2: full it is at its hard limit",
		"00000400000004 destroying 0+0/2: no it is destroying",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	slot.Done(errBroken)
	if m := b.Status(now, "web").Routes[0].Machines[0]; m.Use != machinesapi.UseLastResort || m.Why != "it or its worker failed recently" {
		t.Errorf("after a failure: %+v", m)
	}
	if got := b.Status(now, "other"); len(got.Routes) != 0 {
		t.Errorf("status of another app: %+v", got)
	}
}

// TestFixedTarget checks that a fixed target's machines are used whatever the table contains.
func TestFixedTarget(t *testing.T) {
	t.Parallel()
	b := balance.New(balance.Config{})
	now := table(3, 0)
	b.Update(now)
	own := *of(t, now)
	own.Backends, own.Fixed = own.Backends[1:2], true
	for range 20 {
		slot := take(t, b, &own, balance.Criteria{})
		if got := slot.Backend().Machine; got != id(1) {
			t.Fatalf("the request goes to %s, want %s", got, id(1))
		}
		slot.Done(nil)
	}
}
