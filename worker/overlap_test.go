package worker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// While starts and other changes to a machine overlap on a slow disk, the worker returns many versions of the machine's
// record. A later version must never contain older data, so that a caller can rely on the latest version that it has
// received.
func TestALaterVersionIsNeverOlder(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { overlap(t, seed) })
		})
	}
}

func overlap(t *testing.T, seed uint64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 11))
	pick := func(n int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.IntN(n)) * time.Millisecond
	}
	h := newHostDown(t, nil)
	h.start(func(stage store.FaultStage, _ uint64) error {
		if stage == store.FaultBefore {
			time.Sleep(pick(30))
		}
		return nil
	})
	defer func() { h.crash() }()
	words := []string{"run"}
	if seed%3 == 0 {
		words = []string{"sleep", "5ms", "exit", "3"}
	}
	id := h.place(run(words...)).ID
	if _, err := h.machines.Stop(t.Context(), id, fabric.MachineAction{}); err != nil && seed%3 != 0 {
		t.Fatal(err)
	}
	if _, err := h.state.AwaitMachine(t.Context(), id, func(m *bourse.Machine) bool { return m.State == bourse.StateStopped }); err != nil {
		t.Fatal(err)
	}

	var seen []bourse.Machine
	var wg sync.WaitGroup
	do := func(act func() (bourse.Machine, error)) {
		delay := pick(60)
		wg.Go(func() {
			time.Sleep(delay)
			if m, err := act(); err == nil {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, m)
			}
		})
	}
	reply := func(r fabric.ActReply, err error) (bourse.Machine, error) { return r.Machine, err }
	ctx := t.Context()
	for range 2 {
		do(func() (bourse.Machine, error) { return reply(h.machines.Start(ctx, id, fabric.MachineAction{})) })
	}
	for n := range 3 {
		value := fmt.Sprint(n)
		do(func() (bourse.Machine, error) {
			return h.machines.SetMetadata(ctx, id, fabric.MetadataRequest{Set: map[string]*string{"n" + value: &value}})
		})
	}
	do(func() (bourse.Machine, error) { return reply(h.machines.Cordon(ctx, id, fabric.MachineAction{}, true)) })
	if seed%2 == 0 {
		do(func() (bourse.Machine, error) { return reply(h.machines.Stop(ctx, id, fabric.MachineAction{})) })
	}
	wg.Wait()
	time.Sleep(time.Minute)
	last, err := h.state.Machine(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	seen = append(seen, last)
	for i := range seen {
		for k := range seen {
			if d := older(&seen[i], &seen[k], &last); d != "" {
				t.Errorf("version %s: %s", seen[i].UpdatedAt.Format(time.RFC3339Nano), d)
			}
		}
	}
}

// older describes which data of an earlier version is missing in a later version
// although nothing has removed it. It returns "" if nothing is missing.
func older(later, earlier, last *bourse.Machine) string {
	if later.UpdatedAt.Before(earlier.UpdatedAt) {
		return ""
	}
	if later.UpdatedAt.Equal(earlier.UpdatedAt) {
		return cmp.Diff(earlier, later, byAddress, cmpopts.IgnoreFields(bourse.Machine{}, "LastEvents"))
	}
	for k := range earlier.Config.Metadata {
		if _, ok := later.Config.Metadata[k]; !ok {
			return "has no metadata " + k
		}
	}
	switch {
	case earlier.Cordoned && !later.Cordoned:
		return "is no longer cordoned"
	case earlier.Boot.Number > later.Boot.Number:
		return "is from an earlier boot"
	case earlier.Boot.Number == later.Boot.Number && earlier.Boot.Exit != nil && later.Boot.Exit == nil:
		return "has not ended yet"
	case later.UpdatedAt.After(last.UpdatedAt):
		return "is later than the last version: " + last.UpdatedAt.Format(time.RFC3339Nano)
	}
	return ""
}
