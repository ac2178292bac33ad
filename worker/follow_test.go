package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/publish"
)

// Once nothing changes any more, the view matches the store, whatever happened to the machines, however the view
// failed, and whenever the daemon died. The test ends before the worker's next full comparison, so the individual
// updates must be enough.
func TestTheViewFollowsTheStore(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &follow{rng: rand.New(rand.NewPCG(seed, 3)), view: newMemView()}
				s.host = newHostWith(t, s.view)
				defer func() { s.host.crash() }()
				s.view.fail(s.fault)
				for range 80 {
					s.step()
				}
				s.heal()
				time.Sleep(publish.CheckInterval / 2)
				s.checkView(s.view)
				s.crash()
			})
		})
	}
}

// follow generates a random history of operations, failures and crashes.
type follow struct {
	*host
	view *memView
	ids  []bourse.MachineID

	mu   sync.Mutex
	rng  *rand.Rand
	sick string // how the view fails: "", "errors", "hides" or "hangs"
}

func (s *follow) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *follow) fault(ctx context.Context, _ string, after bool) error {
	s.mu.Lock()
	sick, now := s.sick, s.rng.IntN(2) == 0
	s.mu.Unlock()
	switch {
	case sick == "hangs" && !after:
		<-ctx.Done()
		return ctx.Err()
	case sick == "errors" && !after && now, sick == "hides" && after && now:
		return errView
	}
	return nil
}

func (s *follow) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sick = ""
}

// slowDisk delays each commit, so that many operations overlap.
func (s *follow) slowDisk(stage store.FaultStage, _ uint64) error {
	if stage == store.FaultBefore {
		time.Sleep(time.Duration(s.pick(40)) * time.Millisecond)
	}
	return nil
}

func (s *follow) step() {
	ctx := s.t.Context()
	if s.pick(8) == 0 { // a caller that gives up
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.pick(20))*time.Millisecond)
		defer cancel()
	}
	id := bourse.MachineID("abcdef01234567") // a machine that does not exist
	if len(s.ids) > 0 {
		id = s.ids[s.pick(len(s.ids))]
	}
	switch s.pick(14) {
	case 0, 1, 2, 3:
		words := [][]string{{"run"}, {"exit", "3"}, {"sleep", "1s", "exit", "4"}, {"missing"}}[s.pick(4)]
		order := newOrder(s.t, run(words...), restart(bourse.RestartOnFailure, 2))
		if fill, _, err := s.claim(ctx, &bourse.Claim{Order: *order}); err == nil && fill != nil {
			s.ids = append(s.ids, fill.Machine.ID)
			if s.pick(4) == 0 {
				s.view.cancel(order.ID)
			}
		}
	case 4:
		_, _ = s.machines.Stop(ctx, id, fabric.MachineAction{})
	case 5:
		_, _ = s.machines.Start(ctx, id, fabric.MachineAction{})
	case 6, 7:
		_, _ = s.machines.Destroy(ctx, id, fabric.MachineAction{Force: true})
	case 8:
		_, _ = s.machines.Cordon(ctx, id, fabric.MachineAction{}, s.pick(2) == 0)
	case 9:
		_, _ = s.machines.SetMetadata(ctx, id, fabric.MetadataRequest{Set: map[string]*string{"n": new(fmt.Sprint(s.pick(100)))}})
	case 10:
		s.mu.Lock()
		s.sick = []string{"", "", "errors", "hides", "hangs"}[s.rng.IntN(5)]
		s.mu.Unlock()
	case 11:
		s.view.lose()
	case 12:
		if s.pick(3) == 0 {
			s.crash()
			s.start(s.slowDisk)
		}
	case 13:
		time.Sleep(time.Duration(s.pick(3000)) * time.Millisecond)
	}
	time.Sleep(time.Duration(s.pick(30)) * time.Millisecond)
}
