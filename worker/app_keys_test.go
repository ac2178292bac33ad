package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/store"
)

// safe is a view in which each app has the secret PASSWORD, sealed with the first of
// the view's keys.
type safe struct {
	keys   *seal.Keys
	mark   seal.Mark
	mu     sync.Mutex
	none   bool                                           // whether apps have no secrets
	broker func(bourse.MachineID) (bourse.AppKeys, error) // answers requests for keys; if nil, brokers refuse such requests
}

// newSafe returns a set of keys, old, and a view whose keys are a new key followed by the old ones.
func newSafe(t testing.TB) (old *seal.Keys, both *safe) {
	t.Helper()
	line := seal.Generate()
	old, err := seal.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Read(slices.Concat(seal.Generate(), line))
	if err != nil {
		t.Fatal(err)
	}
	return old, &safe{keys: keys, mark: seal.Marks{}.Next(1, time.Now())}
}

func (s *safe) setup(c *Config) { c.Secrets = s }

func (s *safe) empty(none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.none = none
}

func (s *safe) Secrets(_ context.Context, app string) ([]seal.Secret, error) {
	sealed, err := s.keys.Seal(seal.Place{App: app, Name: "PASSWORD"}, []byte("hunter2"))
	return []seal.Secret{{Name: "PASSWORD", Sealed: sealed}}, err
}

func (s *safe) AwaitSecrets(context.Context, string, uint64) (seal.Marks, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks := seal.Marks{}
	if !s.none {
		marks.Add(s.mark)
	}
	return marks, nil
}

func (*safe) AwaitSynced(context.Context) {}

func (s *safe) AppKeys(_ context.Context, id bourse.MachineID) (bourse.AppKeys, error) {
	if s.broker == nil {
		return nil, bourse.Errorf(bourse.CodeForbidden, "no keys")
	}
	return s.broker(id)
}

// keysOf returns the keys that the store contains for a machine.
func (h *host) keysOf(id bourse.MachineID) (keys bourse.AppKeys) {
	h.t.Helper()
	if err := h.store.View(func(tx *store.Tx) error { keys = tx.AppKeys(id); return nil }); err != nil {
		h.t.Fatal(err)
	}
	return keys
}

// claimWith claims an order and passes its app's keys with the claim.
func (h *host) claimWith(ctx context.Context, keys *seal.Keys, change ...func(*bourse.Order)) (bourse.Machine, error) {
	order := newOrder(h.t, change...)
	fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order, AppKeys: keys.OfApp(order.App.ID)})
	if err == nil && refusal != nil {
		err = bourse.Errorf(bourse.CodeUnavailable, "%s", refusal.Detail)
	}
	if err != nil {
		return bourse.Machine{}, err
	}
	return fill.Machine, nil
}

// A machine restarts without a broker: by its restart policy, by a request, and after the daemon has died. This works
// even if its app had no secrets when the machine was ordered.
func TestAMachineRestartsWithItsOrdersKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, safe := newSafe(t)
		safe.empty(true)
		h := newHost(t, safe.setup)
		defer func() { h.crash() }()
		failing, err := h.claimWith(t.Context(), safe.keys, run("sleep", "1m", "exit", "4"), restart(bourse.RestartOnFailure, 2))
		if err != nil {
			t.Fatal(err)
		}
		steady, err := h.claimWith(t.Context(), safe.keys, run("run"))
		if err != nil {
			t.Fatal(err)
		}
		other, err := h.claimWith(t.Context(), safe.keys, run("run"), func(o *bourse.Order) { o.App.Name, o.App.ID = "other", "02" })
		if err != nil {
			t.Fatal(err)
		}
		safe.empty(false)
		h.must(h.machines.Stop(t.Context(), steady.ID, fabric.MachineAction{}))
		h.reaches(steady.ID, bourse.StateStopped)
		h.crash()
		h.start(nil)
		if m := h.must(h.machines.Start(t.Context(), steady.ID, fabric.MachineAction{})); m.State != bourse.StateStarted || m.Secrets != safe.mark.Version {
			t.Errorf("started by a request: %s with secrets %d, want %d", m.State, m.Secrets, safe.mark.Version)
		}
		time.Sleep(90 * time.Second) // virtual time: the machine exits, and its policy restarts it
		if m := h.get(failing.ID); m.State != bourse.StateStarted || m.Boot.Number != 2 || m.Secrets != safe.mark.Version {
			t.Errorf("started by its policy: %s at boot %d with secrets %d", m.State, m.Boot.Number, m.Secrets)
		}
		if own, others := h.keysOf(steady.ID), h.keysOf(other.ID); !slices.Equal(own, safe.keys.OfApp("01")) || !slices.Equal(others, safe.keys.OfApp("02")) {
			t.Error("machines do not have exactly their own apps' keys")
		}
		h.must(h.machines.Destroy(t.Context(), steady.ID, fabric.MachineAction{Force: true}))
		if len(h.keysOf(steady.ID)) != 0 {
			t.Error("the store still has a destroyed machine's keys")
		}
	})
}

// A machine whose keys do not decrypt its app's secrets gets the right keys from a broker, even when its restart policy
// starts it. If no broker answers, the start is retried until one does.
func TestAWorkerAsksForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, safe := newSafe(t)
		safe.empty(true)
		asked := make(chan bourse.MachineID, 10)
		safe.broker = func(id bourse.MachineID) (bourse.AppKeys, error) {
			asked <- id
			if len(asked) == 1 {
				return nil, bourse.Errorf(bourse.CodeUnavailable, "no broker is running")
			}
			return safe.keys.OfApp("01"), nil
		}
		h := newHost(t, safe.setup)
		defer func() { h.crash() }()
		m, err := h.claimWith(t.Context(), old, run("sleep", "1m", "exit", "4"), restart(bourse.RestartOnFailure, 2))
		if err != nil {
			t.Fatal(err)
		}
		safe.empty(false)
		time.Sleep(90 * time.Second) // virtual time: the machine exits, and its policy restarts it
		before := len(asked)
		if now := h.get(m.ID); now.State != bourse.StateStarted || now.Boot.Number != 2 || now.Secrets != safe.mark.Version || before < 2 {
			t.Fatalf("%s at boot %d with secrets %d after %d requests", now.State, now.Boot.Number, now.Secrets, before)
		}
		if !slices.Equal(h.keysOf(m.ID), safe.keys.OfApp("01")) {
			t.Error("the keys were not recorded")
		}
		h.must(h.machines.Restart(t.Context(), m.ID, fabric.MachineAction{}))
		if len(asked) != before {
			t.Error("the worker requested keys that it had already recorded")
		}
		for range before {
			if id := <-asked; id != m.ID {
				t.Errorf("the worker requested the keys of machine %s, want %s", id, m.ID)
			}
		}
	})
}

// A machine whose keys do not decrypt its app's secrets does not start, and a restart does not stop it. The error
// explains what to do, and a start through a broker provides new keys.
func TestAStartProvidesNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, safe := newSafe(t)
		safe.empty(true)
		h := newHost(t, safe.setup)
		defer h.crash()
		app := newOrder(t).App.ID
		m, err := h.claimWith(t.Context(), old, run("run"))
		if err != nil {
			t.Fatal(err)
		}
		bare := h.place(run("run")) // ordered through a broker without secrets.key
		safe.empty(false)
		for what, id := range map[string]bourse.MachineID{"a key that was replaced": m.ID, "no key": bare.ID} {
			_, err := h.machines.Restart(t.Context(), id, fabric.MachineAction{})
			if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "machine restart") || h.get(id).State != bourse.StateStarted {
				t.Errorf("%s: %v, and the machine is %s", what, err, h.get(id).State)
			}
		}
		if _, err := h.machines.Restart(t.Context(), m.ID, fabric.MachineAction{AppKeys: safe.keys.OfApp("other")}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("another app's keys: %v", err)
		}
		if !slices.Equal(h.keysOf(m.ID), old.OfApp(app)) {
			t.Error("the store contains keys that do not decrypt anything")
		}
		h.must(h.machines.Restart(t.Context(), m.ID, fabric.MachineAction{AppKeys: safe.keys.OfApp(app)}))
		h.must(h.machines.Stop(t.Context(), bare.ID, fabric.MachineAction{}))
		h.reaches(bare.ID, bourse.StateStopped)
		h.must(h.machines.Start(t.Context(), bare.ID, fabric.MachineAction{AppKeys: safe.keys.OfApp(app)}))
		for _, id := range []bourse.MachineID{m.ID, bare.ID} {
			h.must(h.machines.Restart(t.Context(), id, fabric.MachineAction{})) // restarts no longer need a broker
		}
		updated := h.place(run("run"), func(o *bourse.Order) { o.SkipSecrets = true })
		req, err := h.updateOf(t.Context(), updated.ID, env("VERSION", "2"))
		if err != nil {
			t.Fatal(err)
		}
		req.AppKeys = safe.keys.OfApp(app)
		h.must(h.machines.Update(t.Context(), req))
		h.must(h.machines.Restart(t.Context(), updated.ID, fabric.MachineAction{}))
	})
}

// An order whose keys do not decrypt its app's secrets is refused, and its machine does not run.
func TestAnOrderWithoutKeysIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, safe := newSafe(t)
		h := newHost(t, safe.setup)
		defer h.crash()
		order := newOrder(t, run("run"))
		for what, keys := range map[string]bourse.AppKeys{"none": nil, "old ones": old.OfApp(order.App.ID), "no keys at all": {1, 2}} {
			order.ID = bourse.NewOrderID()
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order, AppKeys: keys})
			if fill != nil || refusal == nil && err == nil {
				t.Errorf("%s: %+v, %+v, %v, want a refusal", what, fill, refusal, err)
			}
			if refusal != nil && (refusal.Reason != bourse.RefusedProgram || !strings.Contains(refusal.Detail, "secret")) {
				t.Errorf("%s: refusal %+v", what, refusal)
			}
		}
		if len(h.mem.Running()) != 0 {
			t.Error("something runs")
		}
	})
}

// The daemon dies before and after every commit of claims, starts and updates that provide keys. Afterwards, each
// machine has the keys from the last call that was confirmed or from the call that was in progress, and starts with
// them. A destroyed machine has no keys.
func TestKeysSurviveEveryCrash(t *testing.T) {
	old, safe := newSafe(t)
	safe.empty(true)
	app := newOrder(t).App.ID
	const before, after = "before", "after"
	values := map[string]bourse.AppKeys{before: old.OfApp(app), after: safe.keys.OfApp(app)}
	// life runs the scenario and returns which keys each machine must have, as far as its callers know. "" means that
	// both old and new keys are allowed.
	life := func(h *host) map[bourse.MachineID]string {
		ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
		defer cancel()
		expected := map[bourse.MachineID]string{}
		claimed := make([]bourse.MachineID, 4)
		for i := range claimed {
			m, err := h.claimWith(ctx, old, run("run"))
			if err != nil {
				return expected
			}
			claimed[i], expected[m.ID] = m.ID, before
		}
		act := fabric.MachineAction{AppKeys: values[after]}
		for i, do := range []func(id bourse.MachineID) error{
			func(id bourse.MachineID) error { _, err := h.machines.Restart(ctx, id, act); return err },
			func(id bourse.MachineID) error {
				if _, err := h.machines.Stop(ctx, id, fabric.MachineAction{}); err != nil {
					return err
				}
				_, err := h.machines.Start(ctx, id, act)
				return err
			},
			func(id bourse.MachineID) error {
				req, err := h.updateOf(ctx, id, env("VERSION", "2"))
				if err == nil {
					req.AppKeys = values[after]
					_, err = h.machines.Update(ctx, req)
				}
				return err
			},
			func(id bourse.MachineID) error {
				_, err := h.machines.Destroy(ctx, id, fabric.MachineAction{Force: true})
				return err
			},
		} {
			expected[claimed[i]] = ""
			if do(claimed[i]) != nil {
				return expected
			}
			expected[claimed[i]] = after
		}
		return expected
	}
	check := func(h *host, expected map[bourse.MachineID]string) {
		time.Sleep(10 * time.Minute) // virtual time: by now, every run has ended
		all, err := h.machines.List(h.t.Context(), nil, func(*bourse.Machine) bool { return true })
		if err != nil {
			h.t.Fatal(err)
		}
		for i := range all {
			m, keys := &all[i], h.keysOf(all[i].ID)
			switch want, known := expected[m.ID], values[expected[m.ID]]; {
			case m.State == bourse.StateDestroyed:
				if len(keys) != 0 {
					h.t.Errorf("destroyed machine %s still has keys", m.ID)
				}
			case known != nil && !slices.Equal(keys, known):
				h.t.Errorf("machine %s does not have the keys from %s: %v", m.ID, want, story(*m))
			case !slices.Equal(keys, values[before]) && !slices.Equal(keys, values[after]):
				h.t.Errorf("machine %s has no keys: %v", m.ID, story(*m))
			}
		}
	}
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		h := newHostDown(t, safe.setup)
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		if expected := life(h); len(expected) != 4 {
			t.Fatalf("the scenario fails even without a crash: %v", expected)
		}
		h.crash()
	})
	t.Logf("%d commits", commits)
	for n := uint64(2); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHostDown(t, safe.setup)
					expected := map[bourse.MachineID]string{}
					if h.tryStart(crashAt(stage, n)) == nil {
						expected = life(h)
						h.crash()
					}
					h.start(nil)
					check(h, expected)
					h.verify()
					h.crash()
				})
			})
		}
	}
}
