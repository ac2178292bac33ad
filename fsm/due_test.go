package fsm_test

import (
	"context"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse/fsm"
)

// TestDelayIgnoresClockChanges changes the host's clock between the start of a delayed run and the daemon's restart.
// The run must never wait longer than its whole delay, and must execute immediately if the delay has passed.
func TestDelayIgnoresClockChanges(t *testing.T) {
	for name, c := range map[string]struct{ written, notBefore, want time.Duration }{
		"set back":     {time.Hour, time.Hour + time.Second, time.Second},
		"as it was":    {-time.Second, 2 * time.Second, 2 * time.Second},
		"long over":    {-time.Hour, -time.Minute, 0},
		"set forwards": {-2 * time.Hour, -2*time.Hour + time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				l.stop()
				done := make(chan time.Time, 1)
				d := fsm.Define[string, []string]("later").Step("note", func(context.Context, *run) fsm.Outcome {
					done <- time.Now()
					return fsm.Done()
				})
				now := time.Now()
				rec := fsm.Record{
					ID: ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String(), Definition: "later", Resource: "machine/1", Status: fsm.Delayed, Step: "note",
					Request: []byte(`""`), CreatedAt: now.Add(c.written), UpdatedAt: now.Add(c.written), NotBefore: now.Add(c.notBefore).Round(0),
				}
				if err := l.disk.Journal().Submit(func(tx fsm.Tx) error { return tx.PutRun(rec) }).Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				e := fsm.New(fsm.Config{Journal: l.disk.Journal()})
				e.Register(d)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- e.Run(ctx) }()
				if took := (<-done).Sub(began).Round(10 * time.Millisecond); took != c.want { // rounds off the disk's time
					t.Errorf("executed after %s, want %s", took, c.want)
				}
				if _, err := e.Wait(t.Context(), rec.ID); err != nil {
					t.Error(err)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
