package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// inject makes system calls of a process fail until the process exits or release is called.
// release stops the tracer even if it is waiting for the process. Before that, nobody else
// is notified of the exit of a traced process.
func inject(t *testing.T, pid int, calls, fault string) (release func()) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is missing: run scripts/need-host to install it")
	}
	var said bytes.Buffer
	out := filepath.Join(t.TempDir(), "strace")
	// Each system call waits for the tracer twice. On a busy host, the process would make
	// no progress if the tracer had to wait for the CPU as well.
	c := exec.Command("nice", "-n", "-20", strace, "-f", "-p", strconv.Itoa(pid), "-o", out, "-e", "trace="+calls, "-e", "inject="+calls+":"+fault)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = c.Wait()
	}()
	release = func() {
		_ = c.Process.Signal(os.Interrupt) // makes strace detach from the process
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			_ = c.Process.Kill()
			<-gone
		}
	}
	t.Cleanup(release)
	if !servertest.Within(servertest.Timeout, func() bool { return traced(pid) }) {
		release() // after this, strace no longer writes to said
		t.Skipf("strace does not trace the process: %s", &said)
	}
	return release
}

// stateOf describes the state of a process as the kernel reports it.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, ":"); name == "State" || name == "Threads" || name == "TracerPid" {
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(out, ", ")
}

// traced reports whether all threads of a process are traced.
func traced(pid int) bool {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return err == nil && len(all) > 0
}

// processes counts processes by their last argument, if that begins with mark.
func processes(mark string) map[string]int {
	found := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		text, _ := os.ReadFile(path) // the process may have exited
		words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if last := words[len(words)-1]; len(words) > 3 && strings.HasPrefix(last, mark) {
			found[last]++
		}
	}
	return found
}

// TestFailedSyncStopsTheDaemon makes syncs of a worker's disk fail under load. The daemon must exit immediately with a
// non-zero status, its machines must continue, and for each order there must be exactly one machine, which the caller
// knows. A regression would refuse the orders, fill them on another worker, and fill them again from the disk after a
// restart.
func TestFailedSyncStopsTheDaemon(t *testing.T) {
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	var workers []*servertest.Server
	for _, name := range []string{"w1", "w2"} {
		workers = append(workers, servertest.New(t, name,
			"serve", "worker", "--region", "gru", "--name", name, "--data", filepath.Join(t.TempDir(), name),
			"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral", "--join", broker.Addr))
	}
	servertest.StartAll(t, workers...)
	api, sick := servertest.Client(t, broker), workers[0]
	sick.Settle()
	for _, name := range []bourse.WorkerID{"w1", "w2"} {
		if !servertest.Within(servertest.Timeout, func() bool {
			w, err := api.Worker(t.Context(), name)
			return err == nil && w.Status == machinesapi.WorkerOK
		}) {
			t.Fatalf("the broker does not know %s", name)
		}
	}
	mark := fmt.Sprintf("bourse-eio-%d-", os.Getpid())
	order := func(id bourse.OrderID) machinesapi.CreateMachine {
		return machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"sh", "-c", "sleep 1000 & wait", mark + string(id)}},
		}}
	}
	var all sync.Map // machines by the command line of their orders, for orders that were answered
	var asked, failures atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond) // limit the rate, to leave capacity for other clients
			defer pace.Stop()
			for ctx.Err() == nil {
				<-pace.C
				id := bourse.NewOrderID()
				asked.Add(1)
				in := order(id)
				for { // repeat the request until it is answered, which the order's id makes safe
					m, err := api.Create(t.Context(), "default", in, id)
					if err == nil {
						all.Store(mark+string(id), m.ID)
						break
					}
					failures.Add(1)
					if c := bourse.CodeOf(err); c != bourse.CodeTimeout && c != bourse.CodeUnavailable || t.Context().Err() != nil {
						t.Errorf("order %s: %v, want success, timeout or unavailable", id, err)
						break
					}
				}
			}
		})
	}
	if !servertest.Within(servertest.Timeout, func() bool { return asked.Load() > 20 }) {
		t.Fatal("too few orders were placed, want more than 20")
	}
	before := processes(mark)
	pid := sick.Cmd.Process.Pid
	release := inject(t, pid, "fdatasync,fsync", "error=EIO")
	ended := make(chan error, 1)
	go func() { ended <- sick.Cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(2 * time.Minute):
		was := stateOf(pid)
		release()
		select {
		case err = <-ended: // the daemon had already exited, and strace had not noticed
			t.Logf("strace still held the exited daemon: %s", was)
		case <-time.After(10 * time.Second):
			now := stateOf(pid)
			_ = sick.Cmd.Process.Signal(syscall.SIGQUIT) // makes the daemon print its goroutines
			<-ended
			t.Fatalf("the daemon still runs with a failed disk: %s; without strace: %s", was, now)
		}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() <= 0 {
		t.Errorf("the daemon with the failed disk exited with %v, want a non-zero status", err)
	}
	if now := processes(mark); len(now) < len(before) {
		t.Errorf("%d machines ran before, and %d after, want all of them", len(before), len(now))
	}
	// An order that is repeated and that the worker may have filled waits for the worker. A
	// new order does not. Each attempt is a new order, because the broker may not have noticed yet
	// that the worker has exited, and may send it the first one.
	if !servertest.Within(servertest.Timeout, func() bool {
		id := bourse.NewOrderID()
		in := order(id)
		in.FirstTry = true
		var m machinesapi.CreatedMachine
		if m, err = api.Create(t.Context(), "default", in, id); err == nil {
			all.Store(mark+string(id), m.ID)
		}
		return err == nil
	}) {
		t.Errorf("no order was filled by another worker after the daemon had exited: %v", err)
	}
	if err := sick.Start(); err != nil {
		t.Fatal(err)
	}
	stop()
	clients.Wait()
	var wrong []string
	if !servertest.Within(servertest.Timeout, func() bool {
		wrong = nil
		running := processes(mark)
		all.Range(func(order, _ any) bool {
			if n := running[order.(string)]; n != 1 {
				wrong = append(wrong, fmt.Sprintf("%s has %d machines", order, n))
			}
			delete(running, order.(string))
			return true
		})
		for order := range running {
			wrong = append(wrong, order+" was never answered, but runs")
		}
		return len(wrong) == 0
	}) {
		t.Errorf("of %d orders, %d without an answer, some had the wrong result:\n%s", asked.Load(), failures.Load(), strings.Join(wrong, "\n"))
	}
	t.Logf("%d orders, %d answers lost", asked.Load(), failures.Load())
}

// TestMachinesSurviveALostDirectory removes a worker's data directory, as if its disk were not mounted, or restores an
// old copy of its store. The next start must be refused with a list of the machines, none of which may be stopped. Once
// the original directory is back, the machines must be found running.
func TestMachinesSurviveALostDirectory(t *testing.T) {
	data := filepath.Join(t.TempDir(), "w1")
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	w := servertest.Start(t, "w1", "serve", "worker", "--region", "gru", "--name", "w1", "--data", data,
		"--cpus", "8", "--memory", "8GiB", "--disk", "1TiB", "--ephemeral", "--join", broker.Addr)
	api := servertest.Client(t, broker)
	if !servertest.Within(servertest.Timeout, func() bool {
		w, err := api.Worker(t.Context(), "w1")
		return err == nil && w.Status == machinesapi.WorkerOK
	}) {
		t.Fatal("the broker does not know its worker")
	}
	mark := fmt.Sprintf("bourse-lost-%d-", os.Getpid())
	w.Settle()
	run := func(n int) bourse.MachineID {
		var m machinesapi.CreatedMachine
		var err error
		id := bourse.NewOrderID()
		if !servertest.Within(servertest.Timeout, func() bool { // the broker may not know yet that the worker is reachable
			m, err = api.Create(t.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
				Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"sh", "-c", "sleep 1000 & wait", mark + strconv.Itoa(n)}},
			}}, id)
			return err == nil
		}) {
			t.Fatal(err)
		}
		return m.ID
	}
	first := run(0)
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(data)); err != nil && !strings.Contains(err.Error(), "socket") {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	second := run(1)
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	refused := func(why string, named bourse.MachineID) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, servertest.Program, w.Args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() <= 0 || !strings.Contains(string(out), string(named)) ||
			!strings.Contains(string(out), "--forget-machines") {
			t.Errorf("%s: the start returned %v, want an error that names %s: %s", why, err, named, out)
		}
		if n := len(processes(mark)); n != 2 {
			t.Fatalf("%s: %d machines run, want 2", why, n)
		}
	}
	away := data + ".away"
	if err := errors.Join(os.Rename(data, away), os.Mkdir(data, 0o711)); err != nil {
		t.Fatal(err)
	}
	refused("an empty directory", first)
	if err := errors.Join(os.RemoveAll(data), os.Rename(old, data)); err != nil {
		t.Fatal(err)
	}
	refused("an old copy", second)
	if err := errors.Join(os.RemoveAll(data), os.Rename(away, data)); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []bourse.MachineID{first, second} {
		if m, err := api.Machine(t.Context(), "default", id); err != nil || m.State != bourse.StateStarted {
			t.Errorf("machine %s: %s, %v, want started", id, m.State, err)
		}
	}
	if n := len(processes(mark)); n != 2 {
		t.Errorf("%d machines run, want 2", n)
	}
}

// TestMachinesDoNotInheritProtection checks OOM scores: a worker's daemon and its
// supervisor must be protected from the kernel's OOM killer, but its machines and their
// processes must not be.
func TestMachinesDoNotInheritProtection(t *testing.T) {
	if err := exec.Command("sh", "-c", "echo -900 > /proc/self/oom_score_adj").Run(); err != nil {
		t.Skip("lowering an OOM score requires CAP_SYS_RESOURCE")
	}
	score := func(pid int) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	own := score(os.Getpid())
	broker, worker := startPair(t)
	m, err := servertest.Client(t, broker).Create(t.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"sleep", "1000"}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := score(m.PID); got != own {
		t.Errorf("a machine has the OOM score adjustment %s, want %s", got, own)
	}
	if got := score(worker.Cmd.Process.Pid); got != "-500" {
		t.Errorf("the daemon has the OOM score adjustment %s, want -500", got)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID))
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(strings.Fields(string(stat))[3])
	if err != nil {
		t.Fatal(err)
	}
	if got := score(supervisor); got != "-900" {
		t.Errorf("the supervisor has the OOM score adjustment %s, want -900", got)
	}
}
