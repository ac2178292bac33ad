package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// harness lets what is made for tests serve a benchmark: the real containerd
// and the real registry that tests run. A fatal error ends the benchmark as a
// panic that inHarness turns back into an error.
type harness struct {
	testing.TB                 // nil: what is not below is not for benchmarks
	ctx        context.Context //nolint:containedctx // as a test's
	dir        string
	cleanups   []func()
	failed     []string
}

type fatal struct{ error }

// inHarness runs do and afterwards what it left to be cleaned up.
func inHarness(ctx context.Context, lab *Lab, do func(*harness) error) (err error) {
	h := &harness{ctx: ctx, dir: lab.dir}
	defer func() {
		for _, clean := range slices.Backward(h.cleanups) {
			clean()
		}
		if f, ok := recover().(fatal); ok {
			err = f.error
		}
		if err == nil && len(h.failed) > 0 {
			err = fmt.Errorf("%s", strings.Join(h.failed, "; "))
		}
	}()
	return do(h)
}

func (*harness) Helper()                    {}
func (h *harness) Context() context.Context { return h.ctx }
func (h *harness) Cleanup(f func())         { h.cleanups = append(h.cleanups, f) }
func (h *harness) Fatal(args ...any)        { panic(fatal{fmt.Errorf("%s", fmt.Sprint(args...))}) }
func (h *harness) Skip(args ...any)         { h.Fatal(args...) }
func (*harness) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (h *harness) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }
func (h *harness) Errorf(format string, args ...any) {
	h.failed = append(h.failed, fmt.Sprintf(format, args...))
}

func (h *harness) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "t")
	if err != nil {
		h.Fatal(err)
	}
	return dir
}

// yard is a market of workers on a containerd of its own, with a registry that
// has a small image and a large one.
type yard struct {
	*harness
	client     *machinesapi.Client
	workers    []*Server
	containerd *containerdtest.Server
	registry   *registrytest.Registry
	small      registrytest.Pushed
}

// yardOf starts workers, each with its own namespace of one containerd.
func yardOf(h *harness, lab *Lab, workers int) (*yard, error) {
	y := &yard{harness: h, containerd: containerdtest.New(h), registry: registrytest.Start(h, registrytest.Options{})}
	y.small = y.registry.Push(h, "busybox:1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(h)}})
	broker, err := lab.broker(h.ctx, "broker")
	if err != nil {
		return nil, err
	}
	y.client = clientOf(broker)
	for i := range workers {
		name := fmt.Sprintf("gru-%d", i)
		w, err := lab.start(h.ctx, name, "serve", "worker", "--region", "gru", "--name", name, "--data", filepath.Join(lab.dir, name),
			"--cpus", "400", "--memory", "400GiB", "--disk", "1TiB", "--ephemeral", "--log-level", "error",
			"--registry-private", "--containerd", y.containerd.Address, "--containerd-namespace", "bench-"+name, "--join", broker.Ready.Gossip)
		if err != nil {
			return nil, err
		}
		y.workers = append(y.workers, w)
	}
	h.Cleanup(func() {
		for _, w := range y.workers { // before the containerd that they use
			w.end()
		}
	})
	return y, until(h.ctx, 10*time.Second, "all workers take orders", func() bool {
		known, err := y.client.Workers(h.ctx)
		return err == nil && len(known) == workers
	})
}

// contained is an order for a machine of an image that sleeps.
func contained(image string) machinesapi.CreateMachine {
	return machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: image, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Cmd: sleeper},
		Restart: &bourse.Restart{Policy: bourse.RestartNo},
	}}
}

func (y *yard) create(image string) (bourse.MachineID, error) {
	m, err := y.client.Create(y.ctx, app, contained(image), "")
	if err == nil && m.State != bourse.StateStarted {
		err = fmt.Errorf("the reply says %s, not started", m.State)
	}
	return m.ID, err
}

func (y *yard) destroy(id bourse.MachineID) error {
	return y.client.Destroy(y.ctx, app, id, machinesapi.DestroyMachine{Force: true}, "")
}
