package fsm_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/fsm/fsmtest"
)

type (
	def    = fsm.Def[string, []string]
	run    = fsm.Run[string, []string]
	handle = fsm.Handle[[]string]
)

// lab is an engine on an in-memory disk, in a synctest bubble.
type lab struct {
	*fsm.Engine
	disk *fsmtest.Memory
	t    *testing.T
	log  bytes.Buffer
	stop func()

	mu   sync.Mutex
	seen []fsm.Status // statuses, in the order in which they were observed
}

// inLab runs a test in a bubble, with a running engine that has the definitions defs.
func inLab(t *testing.T, test func(t *testing.T, l *lab), defs ...fsm.Definition) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{disk: &fsmtest.Memory{Latency: time.Millisecond}, t: t}
		l.Engine = fsm.New(fsm.Config{
			Journal: l.disk.Journal(), Log: slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelDebug})), MaxQueue: 3,
			Observe: func(rec fsm.Record) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen = append(l.seen, rec.Status)
			},
		})
		l.Register(defs...)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		<-l.Resumed()
		l.stop = func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			ended <- nil
		}
		test(t, l)
		l.stop()
	})
}

func (l *lab) start(d *def, request string, o fsm.StartOptions) *handle {
	l.t.Helper()
	h, err := d.Start(l.t.Context(), l.Engine, "machine/1", request, o)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

func (l *lab) status(h *handle) fsm.Status {
	l.t.Helper()
	for _, rec := range l.Runs() {
		if rec.ID == h.ID() {
			return rec.Status
		}
	}
	return ""
}

func (l *lab) wait(h *handle, want bourse.Code) {
	l.t.Helper()
	_ = l.waitErr(h, want) // waitErr has checked the error
}

// waitErr is like wait, but returns the run's error.
func (l *lab) waitErr(h *handle, want bourse.Code) error {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Hour)
	defer cancel()
	_, err := h.Wait(ctx)
	if bourse.CodeOf(err) != want {
		l.t.Fatalf("run ended with %v (code %q), want code %q", err, bourse.CodeOf(err), want)
	}
	return err
}

func done(context.Context, *run) fsm.Outcome { return fsm.Done() }

// hang is a step that waits until its ctx is done.
func hang(ctx context.Context, _ *run) fsm.Outcome {
	<-ctx.Done()
	return fsm.Retry(context.Cause(ctx))
}

func one(name string, fn fsm.StepFunc[string, []string], o ...fsm.StepOptions) *def {
	return fsm.Define[string, []string](name).Step("go", fn, o...)
}
