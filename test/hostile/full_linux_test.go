package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// smallDisk mounts a file system of the given size in MiB and returns its path. It is
// unmounted after the test's servers have stopped.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=711", mib)); err != nil {
		t.Skipf("mounting a small file system requires root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill appends to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// full is a worker with three machines on a small disk, which the test fills.
type full struct {
	*testing.T
	api    *machinesapi.Client
	worker *servertest.Server
	dir    string
	mark   string
	log    said
	ids    []bourse.MachineID
}

// said stores a server's log and writes it to the test's output.
type said struct {
	mu   sync.Mutex
	text strings.Builder
	t    *testing.T
}

// Write implements io.Writer.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	return s.t.Output().Write(b)
}

// lines returns the lines written so far that contain all of the given words.
func (s *said) lines(words ...string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
next:
	for line := range strings.Lines(s.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

func startFull(t *testing.T) *full {
	t.Helper()
	f := &full{T: t, dir: filepath.Join(smallDisk(t, 48), "w1"), mark: fmt.Sprintf("bourse-full-%d-", os.Getpid())}
	f.log.t = t
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	f.worker = servertest.New(t, "w1", "serve", "worker", "--region", "gru", "--name", "w1", "--data", f.dir,
		"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral", "--join", broker.Addr)
	start := f.worker.Launch
	f.worker.Launch = func(c *exec.Cmd) error { c.Stderr = &f.log; return start(c) }
	servertest.StartAll(t, f.worker)
	f.worker.Settle()
	f.api = servertest.Client(t, broker)
	f.within("the broker knows its worker", func() error {
		w, err := f.api.Worker(t.Context(), "w1")
		if err == nil && w.Status != machinesapi.WorkerOK {
			err = fmt.Errorf("the worker is %s, want ok", w.Status)
		}
		return err
	})
	for n := range 3 {
		m, err := f.order(fmt.Sprint(f.mark, n), "")
		if err != nil {
			t.Fatal(err)
		}
		f.ids = append(f.ids, m.ID)
		f.within("the machine's output is in its log", func() error { return f.logged(m.ID) })
	}
	return f
}

// order places an order for a machine. ballast becomes part of its config, to make the
// machine's record large.
func (f *full) order(mark, ballast string) (machinesapi.CreatedMachine, error) {
	return f.api.Create(f.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"sh", "-c", "echo here; sleep 1000 & wait", mark}},
		Env: map[string]string{"A": ballast, "B": ballast},
	}}, "")
}

// logged returns an error unless a machine's log can be read.
func (f *full) logged(id bourse.MachineID) error {
	var text string
	err := f.api.Logs(f.Context(), "default", id, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error { text += l.Text; return nil })
	if err == nil && !strings.Contains(text, "here") {
		err = fmt.Errorf("the log is %q, want a line with \"here\"", text)
	}
	return err
}

// within calls try until it succeeds. It fails the test at the time limit.
func (f *full) within(what string, try func() error) {
	f.Helper()
	var err error
	if !servertest.Within(servertest.Timeout, func() bool { err = try(); return err == nil }) {
		f.Fatalf("%s: %v", what, err)
	}
}

// TestFullDiskAllowsStopsAndDestroys fills a disk completely, first with other data and then with orders for as long as
// the worker accepts any. Then it kills the daemon. The daemon must restart, and it must be possible to list machines,
// read their logs, run commands in them, and stop and destroy them. The daemon must refuse orders with a message that
// names the full directory. Once there is space, it must accept orders again without intervention. A regression let
// orders use the space reserved for the worker's log, so that no exit could be recorded.
func TestFullDiskAllowsStopsAndDestroys(t *testing.T) {
	f := startFull(t)
	ballast := filepath.Join(filepath.Dir(f.dir), "ballast")
	fill(t, ballast)
	var refused error
	taken := 0
	for ; refused == nil && taken < 200; taken++ {
		_, refused = f.order(fmt.Sprint(f.mark, "late-", taken), strings.Repeat("x", 90<<10))
	}
	t.Logf("%d orders were filled on the full disk, then: %v", taken, refused)
	hinted(t, refused, f.dir)
	if err := f.worker.Kill(); err != nil {
		t.Fatal(err)
	}
	fill(t, ballast) // also use the space that the daemon had reserved
	began := time.Now()
	if err := f.worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the daemon was ready after %s", time.Since(began))
	f.within("list", func() error {
		all, silent, err := f.api.Machines(t.Context(), "default", machinesapi.ListMachines{})
		if err == nil && (len(all) < 3 || len(silent) > 0) {
			err = fmt.Errorf("%d machines, and no answer from workers %v; want at least 3 and answers from all", len(all), silent)
		}
		return err
	})
	for _, id := range f.ids {
		if err := f.logged(id); err != nil {
			t.Errorf("logs of machine %s: %v", id, err)
		}
		if out, err := f.api.Exec(t.Context(), "default", id, machinesapi.ExecMachine{Command: []string{"echo", "alive"}}); err != nil || out.Stdout != "alive\n" {
			t.Errorf("exec in %s: %q, %v; want alive", id, out.Stdout, err)
		}
	}
	_, err := f.order(f.mark+"refused", "")
	hinted(t, err, f.dir)
	if err := f.api.Stop(t.Context(), "default", f.ids[0], machinesapi.StopMachine{}, ""); err != nil {
		t.Errorf("stop: %v", err)
	}
	f.within("the machine stops", func() error {
		m, err := f.api.Machine(t.Context(), "default", f.ids[0])
		if err == nil && m.State != bourse.StateStopped {
			err = fmt.Errorf("the machine is %s, want stopped", m.State)
		}
		return err
	})
	for _, id := range f.ids[:2] {
		if err := f.api.Destroy(t.Context(), "default", id, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
			t.Errorf("destroy: %v", err)
		}
	}
	left := processes(f.mark)
	if left[f.mark+"0"]+left[f.mark+"1"] != 0 || left[f.mark+"2"] != 1 {
		t.Errorf("the processes %v run, want only those of machine 2", left)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.within("order after space was freed", func() error { _, err := f.order(f.mark+"new", ""); return err })
	for _, line := range []string{"commit failed", "checkpoint failed", "record finished step failed", "watch machine failed"} {
		if n := len(f.log.lines(line)); n > 2*2 { // two daemons, each of which runs for less than two minutes
			t.Errorf("%q was logged %d times, want at most 4", line, n)
		}
	}
}

// hinted checks that an error is a refusal that names the full directory and suggests what
// to do.
func hinted(t *testing.T, err error, dir string) {
	t.Helper()
	if code := bourse.CodeOf(err); code != bourse.CodeInsufficient && code != bourse.CodeUnavailable {
		t.Fatalf("order on a full disk: %v, want a refusal", err)
	}
	if text := err.Error(); !strings.Contains(text, "disk of "+dir+" is full") || !strings.Contains(text, "free some space") {
		t.Errorf("refused with %q, want a message that the disk of %s is full and that space should be freed", text, dir)
	}
}
