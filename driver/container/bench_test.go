package container

import (
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkStart creates and starts containers from a cached image, once through the driver and
// once through containerd's own client, ctr, which runs as a separate process.
func BenchmarkStart(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run("driver/clients="+itoa(clients), func(b *testing.B) {
			h := newHost(b, nil)
			image := h.busybox(b)
			d, _ := h.recovered(b)
			inParallel(b, clients, func() (func(), error) {
				o := order(image, "/bin/sleep", "1000")
				_, err := d.Start(b.Context(), o)
				return func() { _ = d.Destroy(b.Context(), o.ID.Machine) }, err
			})
		})
		b.Run("ctr/clients="+itoa(clients), func(b *testing.B) {
			h := newHost(b, nil)
			image := h.busybox(b)
			var n atomic.Int64
			ctr := func(args ...string) error {
				return exec.CommandContext(b.Context(), "ctr", append([]string{"--address", h.server.Address, "--namespace", DefaultNamespace}, args...)...).Run()
			}
			inParallel(b, clients, func() (func(), error) {
				id := "bench-" + itoa(int(n.Add(1)))
				err := ctr("run", "-d", image, id, "/bin/sleep", "1000")
				return func() { _, _ = ctr("task", "rm", "-f", id), ctr("container", "rm", id) }, err
			})
		})
	}
}

// inParallel measures calls to op by the given number of concurrent clients. The function that op returns must undo the
// call; it is not measured.
func inParallel(b *testing.B, clients int, op func() (func(), error)) {
	b.Helper()
	var left []func()
	undo := func() {
		for _, f := range left {
			f()
		}
		left = nil
	}
	b.Cleanup(undo)
	for b.Loop() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				f, err := op()
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				left = append(left, f)
				mu.Unlock()
			})
		}
		wg.Wait()
		b.StopTimer()
		undo()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N*clients)/b.Elapsed().Seconds(), "machines/s")
}
