package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchContainer measures how long it takes to create and start a container from a cached image
// through the API. This time is divided by the time that "ctr run -d" takes with the same image
// and containerd. The two measurements alternate.
func benchContainer(ctx context.Context, lab *Lab, out Figures) error {
	return withTB(ctx, lab, func(tb testing.TB) error {
		containerd, registry := containerdtest.New(tb), registrytest.Start(tb, registrytest.Options{})
		image := registry.Push(tb, "busybox:1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(tb)}}).Ref()
		client, workers, err := lab.market(ctx, []string{"gru"}, "--registry-private", "--containerd", containerd.Address, "--containerd-namespace", "bench")
		if err != nil {
			return err
		}
		tb.Cleanup(workers[0].stop) // the worker must stop before its containerd
		ctr := func(args ...string) error {
			c := exec.CommandContext(ctx, "ctr", append([]string{"-a", containerd.Address, "-n", "floor"}, args...)...)
			if text, err := c.CombinedOutput(); err != nil {
				return fmt.Errorf("ctr %v: %w: %s", args, err, text)
			}
			return nil
		}
		if err := ctr("images", "pull", "--plain-http", image); err != nil {
			return err
		}
		var ours, theirs samples
		for i := range 33 {
			if i == 1 {
				ours, theirs = nil, nil // discard the first round, in which the image was pulled
			}
			var m machinesapi.CreatedMachine
			if err := ours.measure(func() (err error) {
				m, err = client.Create(ctx, app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
					Image: image, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Cmd: sleeper},
					Restart: &bourse.Restart{Policy: bourse.RestartNo},
				}}, "")
				return err
			}); err != nil {
				return err
			}
			if m.State != bourse.StateStarted {
				return fmt.Errorf("the machine's state is %s, want started", m.State)
			}
			if err := destroy(ctx, client, m.ID); err != nil {
				return err
			}
			breathe(ctx)
			name := fmt.Sprintf("floor-%d", i)
			if err := theirs.measure(func() error {
				return ctr(append([]string{"run", "-d", "--memory-limit", "67108864", image, name}, sleeper...)...)
			}); err != nil {
				return err
			}
			if err := errors.Join(ctr("tasks", "rm", "-f", name), ctr("containers", "rm", name)); err != nil {
				return err
			}
			breathe(ctx)
		}
		out["container_start_ms"], out["floor_ctr_run_ms"] = ours.median(), theirs.median()
		out["container_start_ratio"] = ours.median() / theirs.median()
		return nil
	})
}

// benchTB implements the methods of testing.TB that containerdtest and registrytest call. Fatal,
// Fatalf and Skip panic, and withTB recovers from the panic.
type benchTB struct {
	testing.TB                 // nil, because no other methods are called
	ctx        context.Context //nolint:containedctx // like a test's context
	dir        string
	cleanups   []func()
	err        error
}

type fatal struct{ error }

// withTB calls fn with a testing.TB, and then runs the cleanup functions that fn registered. It
// returns fn's error, joined with any failures that were reported through the TB.
func withTB(ctx context.Context, lab *Lab, fn func(testing.TB) error) (err error) {
	tb := &benchTB{ctx: ctx, dir: lab.dir}
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			err = f.error
		}
		for _, clean := range slices.Backward(tb.cleanups) {
			clean()
		}
		err = errors.Join(err, tb.err)
	}()
	return fn(tb)
}

func (*benchTB) Helper()                           {}
func (tb *benchTB) Context() context.Context       { return tb.ctx }
func (tb *benchTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }
func (tb *benchTB) Fatal(args ...any)              { panic(fatal{errors.New(fmt.Sprint(args...))}) }
func (tb *benchTB) Fatalf(format string, a ...any) { panic(fatal{fmt.Errorf(format, a...)}) }
func (tb *benchTB) Skip(args ...any)               { tb.Fatal(args...) }
func (*benchTB) Logf(format string, a ...any)      { fmt.Fprintf(os.Stderr, format+"\n", a...) }
func (tb *benchTB) Errorf(format string, a ...any) {
	tb.err = errors.Join(tb.err, fmt.Errorf(format, a...))
}

func (tb *benchTB) TempDir() string {
	dir, err := os.MkdirTemp(tb.dir, "t")
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}
