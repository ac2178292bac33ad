package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
)

// stage is one part of a server. Stages start in order, each one once the previous one
// is ready. They stop in reverse order.
type stage struct {
	name  string
	run   func(ctx context.Context) error // runs the stage until ctx is done
	ready <-chan struct{}                 // closed once the stage is ready; nil means that it is ready as soon as it runs
}

// atEnd returns a stage that calls do when it is stopped. At that time, the stages before it are
// still running. The context passed to do is not canceled.
func atEnd(name string, do func(context.Context) error) stage {
	return stage{name: name, run: func(ctx context.Context) error {
		<-ctx.Done()
		return do(context.WithoutCancel(ctx))
	}}
}

// runStages runs a server until ctx is done or a stage returns. It then stops all stages. If the
// stage returned an error, runStages returns that error, and logs any errors of the stopped stages.
// Otherwise it returns the errors of the stopped stages.
func runStages(ctx context.Context, log *slog.Logger, stages ...stage) error {
	ended := make(chan *runningStage, len(stages)) // each stage sends once, so none blocks
	running, first := startStages(ctx, ended, stages)
	if first == nil {
		select {
		case <-ctx.Done():
		case first = <-ended:
		}
	}
	var problems []error
	for _, r := range slices.Backward(running) {
		r.cancel()
		<-r.done
		switch {
		case r.err == nil || r == first:
		case first != nil && first.err != nil:
			log.Warn("stage failed while stopping after another error", "stage", r.name, "err", r.err)
		default:
			problems = append(problems, r.err)
		}
	}
	if first != nil && first.err != nil {
		return first.err
	}
	return errors.Join(problems...)
}

// startStages starts the stages in order, until ctx is done or a stage returns. It
// returns the running stages, and the stage that has returned, if any.
func startStages(ctx context.Context, ended chan *runningStage, stages []stage) (running []*runningStage, first *runningStage) {
	for _, s := range stages {
		running = append(running, s.start(ctx, ended))
		if s.ready != nil {
			select {
			case <-s.ready:
			case first = <-ended:
				return running, first
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return running, nil
}

type runningStage struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// start runs the stage with its own context, because stages are stopped one after
// another, not all at once when the server's context is done.
func (s stage) start(ctx context.Context, ended chan<- *runningStage) *runningStage {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningStage{name: s.name, cancel: cancel, done: make(chan struct{})}
	go func() {
		r.err = s.run(ctx)
		close(r.done)
		ended <- r
	}()
	return r
}
