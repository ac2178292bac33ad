package worker

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// However many callers there are, a machine never has more payloads in progress than it accepts. If a call is ended
// early, its place becomes free as soon as the connection is closed, although the program may notice the end a moment
// later.
func TestAMachineHasNoMorePayloadsThanItAccepts(t *testing.T) {
	const places, enough = 3, 20 // enough is a number of answers
	p := newProgram(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond) // real time: so that calls overlap
		_, _ = w.Write([]byte("done"))
	})
	h := newHost(t, nil)
	h.place(p.Warmed("narrow", places))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	var answered atomic.Int64
	for range 4 * places {
		group.Go(func() {
			for (answered.Load() < enough || p.Most.Load() < places) && ctx.Err() == nil {
				fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *call(t, "narrow", 1)})
				switch {
				case err != nil:
					t.Error(err)
				case fill != nil:
					answered.Add(1)
				case refusal.Resource != "task narrow" || refusal.Free != 0:
					t.Errorf("refused: %+v", refusal)
				}
			}
		})
	}
	group.Wait()
	if most := p.Most.Load(); most != places || ctx.Err() != nil {
		t.Errorf("%d payloads at once, want %d; %d answers in %v", most, places, answered.Load(), ctx.Err())
	}
}
