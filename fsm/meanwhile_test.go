package fsm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/bourse-dev/bourse/fsm"
)

// What is done meanwhile is done before the run is durable, also when that
// comes to nothing, and for no run that is joined.
func TestMeanwhile(t *testing.T) {
	d := fsm.Define[string, []string]("meanwhile").Step("wait", func(ctx context.Context, _ *run) fsm.Outcome {
		<-ctx.Done()
		return fsm.Retry(ctx.Err())
	})
	inLab(t, func(t *testing.T, l *lab) {
		calls := 0
		o := fsm.StartOptions{Meanwhile: func() {
			calls++
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.seen) > 0 {
				t.Errorf("called when the run was durable: %v", l.seen)
			}
		}}
		no := errors.New("no")
		refused := o
		refused.Write = func(fsm.Tx) error { return no }
		if _, err := d.Start(t.Context(), l.Engine, "a", "", refused); !errors.Is(err, no) || calls != 1 {
			t.Errorf("refused: %v after %d calls, want 1", err, calls)
		}
		for range 2 { // the second joins the first
			if _, err := d.Start(t.Context(), l.Engine, "a", "", o); err != nil || calls != 2 {
				t.Errorf("started: %v after %d calls, want 2", err, calls)
			}
		}
	}, d)
}
