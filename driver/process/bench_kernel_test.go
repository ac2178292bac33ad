package process

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// BenchmarkKernel measures the kernel's part of a start. One process forks and executes programs, 16 at a time, in
// their own directories and groups, without a supervisor, worker or market. The ratio is the rate of these starts
// divided by the rate of starts without directories and groups.
func BenchmarkKernel(b *testing.B) {
	groups := cgroup.Open("kernel", slog.New(slog.DiscardHandler))
	b.Cleanup(groups.Close)
	for _, own := range []*starter{
		{name: "directory", dirs: true, groups: cgroup.None{}},
		{name: "limits", groups: groups},
		{name: "directory and limits", dirs: true, groups: groups},
	} {
		b.Run(own.name, func(b *testing.B) {
			own.home = b.TempDir()
			bare := &starter{groups: cgroup.None{}}
			var ours, floor float64
			for b.Loop() {
				floor += bare.round(b)
				ours += own.round(b)
			}
			b.ReportMetric(ours/floor, "ratio")
		})
	}
}

// starter starts programs, optionally with their own directory and group.
type starter struct {
	name   string
	home   string        // parent of the directories
	dirs   bool          // whether each program has its own directory
	groups cgroup.Groups // creates a group for each program
	made   atomic.Int64
}

// round returns the number of programs started per second. The time for ending them is not measured.
func (s *starter) round(b *testing.B) float64 {
	const n = 500
	ends := make(chan func() error, n)
	out := rate(n, func() {
		end, err := s.start()
		if err != nil {
			b.Error(err)
			return
		}
		ends <- end
	})
	close(ends)
	for end := range ends {
		if err := end(); err != nil {
			b.Error(err)
		}
	}
	return out
}

func (s *starter) start() (end func() error, err error) {
	limits := driver.Limits{Memory: 256, CPUWeight: 1000, CPUQuota: 1000}
	attr := &syscall.ProcAttr{Env: []string{"PATH=" + os.Getenv("PATH")}}
	if s.dirs {
		attr.Dir = filepath.Join(s.home, strconv.FormatInt(s.made.Add(1), 10))
		if err := os.Mkdir(attr.Dir, 0o755); err != nil {
			return nil, err
		}
	}
	forkExec := func(sys *syscall.SysProcAttr) (int, error) {
		sys.Setpgid = true
		attr.Sys = sys
		return syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, attr)
	}
	group, err := s.groups.New(limits)
	if err != nil {
		return nil, err
	}
	var pid int
	switch {
	case group == nil:
		pid, err = forkExec(&syscall.SysProcAttr{})
	case s.groups.ByThread():
		cgroup.OnOwnThread(func() { pid, err = group.Fork(forkExec) })
	default:
		pid, err = group.Fork(forkExec)
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		killGroup(pid, syscall.SIGKILL)
		_, err := syscall.Wait4(pid, nil, 0, nil)
		if group != nil {
			err = errors.Join(err, group.Remove())
		}
		if attr.Dir != "" {
			err = errors.Join(err, os.Remove(attr.Dir))
		}
		return err
	}, nil
}
