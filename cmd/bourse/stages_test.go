package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// notes records events in order.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, s)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.list, " ")
}

// stage returns a stage that records its start and its end.
func (n *notes) stage(name string) stage {
	ready := make(chan struct{})
	return stage{name: name, ready: ready, run: func(ctx context.Context) error {
		n.add("+" + name)
		close(ready)
		<-ctx.Done()
		n.add("-" + name)
		return nil
	}}
}

func TestStagesStartInOrderAndStopInReverse(t *testing.T) {
	var n notes
	ctx, cancel := context.WithCancel(t.Context())
	last := stage{name: "last", run: func(ctx context.Context) error {
		n.add("+last")
		cancel()
		<-ctx.Done()
		n.add("-last")
		return nil
	}}
	clean := atEnd("clean", func(ctx context.Context) error {
		n.add("clean")
		return ctx.Err()
	})
	if err := runStages(ctx, slog.New(slog.DiscardHandler), n.stage("store"), clean, n.stage("api"), last); err != nil {
		t.Fatal(err)
	}
	if got, want := n.String(), "+store +api +last -last -api clean -store"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFailedStageStopsTheServer(t *testing.T) {
	var n notes
	broken := errors.New("broken")
	fails := stage{name: "fails", ready: make(chan struct{}), run: func(context.Context) error { return broken }}
	if err := runStages(t.Context(), slog.New(slog.DiscardHandler), n.stage("store"), fails, n.stage("never")); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if got, want := n.String(), "+store -store"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	late := make(chan struct{})
	ends := stage{name: "ends", run: func(context.Context) error { <-late; return broken }}
	after := stage{name: "after", run: func(ctx context.Context) error { close(late); <-ctx.Done(); return nil }}
	if err := runStages(t.Context(), slog.New(slog.DiscardHandler), ends, after); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestStagesNeedNotBecomeReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits := stage{name: "waits", ready: make(chan struct{}), run: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return nil
	}}
	if err := runStages(ctx, slog.New(slog.DiscardHandler), waits); err != nil {
		t.Errorf("stopped while waiting: %v, want no error", err)
	}
}
