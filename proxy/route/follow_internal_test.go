package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// routeMachine returns machine n of the default app, in the given state.
func routeMachine(n int, state bourse.State) bourse.Machine {
	m := bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("000001%08x", n)), App: bourse.DefaultAppName, Worker: "w1", Region: "gru", State: state,
		Instance: "v1", CreatedAt: time.Now(), Config: bourse.Config{Image: "host"},
	}
	m.Config.Services = json.RawMessage(`[{"autostart":true,"ports":[{"port":80,"handlers":["http"]}]}]`)
	return m
}

// planSource is a cluster for tests.
type planSource struct {
	now    Snapshot
	err    error
	partly bool
	away   bool
	moved  chan struct{}
}

// config returns the config of a Follower that follows the cluster.
func (s *planSource) config(changed func(*Table)) FollowerConfig {
	return FollowerConfig{
		Read:            func(context.Context) (Snapshot, error) { return s.now, s.err },
		Complete:        func() bool { return !s.partly },
		ReachableWorker: func(bourse.WorkerTag) (bourse.WorkerID, bool) { return "w1", !s.away },
		Members:         func() <-chan struct{} { return s.moved },
		Domains:         []string{"localhost"}, Changed: changed, Log: slog.New(slog.DiscardHandler),
	}
}

// shownRoutes returns a description of the backends of the default app.
func shownRoutes(r *Follower) string {
	target, err := r.Find("default.localhost", 80)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, b := range target.Backends {
		out = append(out, fmt.Sprintf("%s %s heard=%t", strings.TrimLeft(string(b.Machine[6:]), "0"), b.State, b.Reachable))
	}
	return strings.Join(out, ", ")
}

// TestRoutesOutliveTheirView checks that routes remain while the view cannot be read or is a new file, and that
// workers' reachability is still updated.
func TestRoutesOutliveTheirView(t *testing.T) {
	t.Parallel()
	one, two := routeMachine(1, bourse.StateStarted), routeMachine(2, bourse.StateStarted)
	source := &planSource{}
	r := NewFollower(source.config(nil))
	const none = `no app serves host "default.localhost"`
	for _, step := range []struct {
		name   string
		change func()
		want   string
		all    bool
	}{
		{"just started", func() { source.partly = true }, "this proxy does not know all apps yet: try again", false},
		{"no apps yet", func() { source.partly = false }, none, true},
		{"two machines", func() { source.now.Machines = []bourse.Machine{one, two} }, "1 started heard=true, 2 started heard=true", true},
		{"the view is unreadable", func() { source.now, source.err = Snapshot{}, errors.New("the disk is unavailable") }, "1 started heard=true, 2 started heard=true", false},
		{"and the worker is unreachable", func() { source.away = true }, "1 started heard=false, 2 started heard=false", false},
		{"the view is readable, but incomplete", func() { source.err, source.partly, source.away = nil, true, false }, "1 started heard=true, 2 started heard=true", false},
		{"the incomplete view has one machine", func() { source.now.Machines = []bourse.Machine{routeMachine(2, bourse.StateStopped)} }, "1 started heard=true, 2 stopped heard=true", false},
		{"the view is complete", func() { source.partly = false }, "2 stopped heard=true", true},
		{"the view is empty", func() { source.now = Snapshot{} }, none, true},
	} {
		step.change()
		all := r.build(t.Context())
		if got := shownRoutes(r); got != step.want || all != step.all {
			t.Errorf("%s: %s, complete: %t; want %s, %t", step.name, got, all, step.want, step.all)
		}
	}
}

// TestRoutesAreNotMadeTooOften checks that the first change is applied immediately, that later
// changes are combined, and that an incomplete view is read again even without a change.
func TestRoutesAreNotMadeTooOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &planSource{}
		var mu sync.Mutex // guards the following variables and the source
		var made []time.Duration
		var began time.Time
		r := NewFollower(source.config(func(*Table) {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, time.Since(began))
			source.partly = false
		}))
		ctx, stop := context.WithCancel(t.Context())
		moved, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			_ = r.Run(ctx, moved)
			close(ended)
		}()
		madeBy := func(partly bool, changes int) []time.Duration {
			time.Sleep(time.Minute)
			mu.Lock()
			began, made, source.partly = time.Now(), nil, partly
			mu.Unlock()
			for range changes {
				select {
				case moved <- struct{}{}:
				default:
				}
				time.Sleep(100 * time.Microsecond)
			}
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			return made
		}
		if got, want := madeBy(false, 100), []time.Duration{0, buildInterval}; !slices.Equal(got, want) {
			t.Errorf("for 100 changes in 10 ms, the routes were built after %v, want %v", got, want)
		}
		if got, want := madeBy(true, 1), []time.Duration{0, retryInterval}; !slices.Equal(got, want) {
			t.Errorf("for an incomplete view, the routes were built after %v, want %v", got, want)
		}
		stop()
		<-ended
	})
}

// TestRoutesFollowTheView checks that a change to a machine reaches the table as soon as it is in the view. The test
// logs the delay.
func TestRoutesFollowTheView(t *testing.T) {
	t.Parallel()
	v := brokersView(t, "w1")
	watcher := v.Watch(wire.TableMachines, wire.TableApps)
	t.Cleanup(watcher.Stop)
	tables := make(chan *Table, 1000)
	var serving inventory.Serving
	config := new(planSource).config(func(table *Table) { tables <- table })
	config.Read = func(ctx context.Context) (out Snapshot, err error) {
		out.Machines, err = view.Query(ctx, v, serving.Read)
		return out, err
	}
	r := NewFollower(config)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, watcher.C) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	var took []time.Duration
	for i := range 40 {
		m := routeMachine(1, []bourse.State{bourse.StateStarted, bourse.StateStopped}[i%2])
		row, began := inventory.MachineRow(&m), time.Now()
		if _, err := v.Publish(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("1 %s heard=true", m.State)
		for shownRoutes(r) != want {
			select {
			case <-tables:
			case <-time.After(30 * time.Second):
				t.Fatalf("the routes are still %q after 30 s, want %q", shownRoutes(r), want)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("from publication to table: p50 %s, max %s", took[len(took)/2], took[len(took)-1])
}

// brokersView returns a broker's view, in memory.
func brokersView(t *testing.T, site bourse.WorkerID) *view.View {
	t.Helper()
	v, err := view.Open(view.Config{Site: site, Cluster: "test", Role: bourse.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}
