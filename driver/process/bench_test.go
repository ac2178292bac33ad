package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// BenchmarkStart compares Start with os/exec's fork and exec of the same program. It runs them
// alternately and reports two ratios: of the median times for one client, and of the rates for 16
// clients.
func BenchmarkStart(b *testing.B) {
	for _, mode := range []LimitMode{LimitsAuto, LimitsOff} {
		b.Run(fmt.Sprintf("limits=%s/clients=1", mode), func(b *testing.B) { benchOne(b, mode) })
		b.Run(fmt.Sprintf("limits=%s/clients=16", mode), func(b *testing.B) { benchMany(b, mode) })
	}
}

func benchHost(b *testing.B, mode LimitMode) *Driver {
	h := newHost(b, func(c *Config) { c.Limits = mode })
	d, _ := h.recovered(b)
	b.Cleanup(func() { _ = d.Close() })
	return d
}

func benchTask(mode LimitMode) driver.Task {
	t := program("sleep", "1000")
	if mode == LimitsAuto {
		t.Limits = driver.Limits{Memory: 256, CPUWeight: 1000, PIDs: 100}
	}
	return t
}

func benchOne(b *testing.B, mode LimitMode) {
	d := benchHost(b, mode)
	var ours, floor []time.Duration
	for b.Loop() {
		// Use random pauses, because fixed ones would synchronize with timers and distort the
		// result.
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		floor = append(floor, bareStart(b))
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		t := benchTask(mode)
		begun := time.Now()
		if _, err := d.Start(b.Context(), t); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(begun))
		time.Sleep(time.Millisecond)
		if err := d.Destroy(b.Context(), t.ID.Machine); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(ours)
	slices.Sort(floor)
	b.ReportMetric(float64(ours[len(ours)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(floor[len(floor)/2].Microseconds()), "floor-p50-µs")
	b.ReportMetric(float64(ours[len(ours)/2])/float64(floor[len(floor)/2]), "ratio")
}

func bareStart(b *testing.B) time.Duration {
	cmd, took := bare(b)
	time.Sleep(time.Millisecond) // let the program run, as when Start is measured
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return took
}

func bare(b *testing.B) (*exec.Cmd, time.Duration) {
	cmd := exec.CommandContext(b.Context(), "sleep", "1000")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return cmd, time.Since(begun)
}

// benchMany measures the number of starts per second. The time for ending the programs is not
// measured.
func benchMany(b *testing.B, mode LimitMode) {
	d := benchHost(b, mode)
	var ours, floor, turns float64
	for b.Loop() {
		const n = 200
		commands := make(chan *exec.Cmd, n)
		floor += rate(n, func() { cmd, _ := bare(b); commands <- cmd })
		for range n {
			cmd := <-commands
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		tasks := make(chan driver.TaskID, n)
		ours += rate(n, func() {
			t := benchTask(mode)
			if _, err := d.Start(b.Context(), t); err != nil {
				b.Error(err)
			}
			tasks <- t.ID
		})
		for range n {
			if err := d.Destroy(b.Context(), (<-tasks).Machine); err != nil {
				b.Error(err)
			}
		}
		turns++
	}
	b.ReportMetric(ours/turns, "starts/s")
	b.ReportMetric(floor/turns, "floor-starts/s")
	b.ReportMetric(ours/floor, "ratio")
}

// rate returns how often per second 16 clients complete fn.
func rate(n int64, fn func()) float64 {
	var wg sync.WaitGroup
	var done atomic.Int64
	begun := time.Now()
	for range 16 {
		wg.Go(func() {
			for done.Add(1) <= n {
				fn()
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(begun).Seconds()
}

// BenchmarkMemory reports the supervisor's memory use for each additional running machine.
func BenchmarkMemory(b *testing.B) {
	d := benchHost(b, LimitsAuto)
	const n = 200
	var per float64
	for b.Loop() {
		before := residentKiB(b, d.pid)
		var started []driver.TaskID
		for range n {
			t := program("sleep", "1000")
			t.Env = append(t.Env, "ABOUT_1_KIB="+strings.Repeat("x", 1000))
			if _, err := d.Start(b.Context(), t); err != nil {
				b.Fatal(err)
			}
			started = append(started, t.ID)
		}
		per = float64(residentKiB(b, d.pid)-before) / n
		b.ReportMetric(float64(before), "before-KiB")
		b.ReportMetric(per, "KiB/machine")
		for _, id := range started {
			if err := d.Destroy(b.Context(), id.Machine); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func residentKiB(b *testing.B, pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d", &kib); n == 1 {
			return kib
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
