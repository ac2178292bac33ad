package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/vmtest"
)

// count is a program that counts in its memory, and writes the numbers to its log and to an open file.
const count = `exec 3>/count; i=0; while :; do i=$((i+1)); echo $i; echo $i >&3; sleep 0.05; done`

const secret = "a secret that no disk contains"

// rig is a virtual machine of a suspend test.
type rig struct {
	*testing.T
	h      *host
	d      driver.Driver
	id     driver.TaskID
	task   driver.Task
	status driver.Status
}

// newRig starts a machine that runs count.
func newRig(t *testing.T, h *host, image string) *rig {
	t.Helper()
	r := &rig{T: t, h: h, id: driver.TaskID{Machine: "00000000000001", Boot: 1}}
	r.task = driver.Task{ID: r.id, Image: image, Command: []string{"sh", "-c", count}, Limits: driver.Limits{Memory: 256}, Secrets: []string{"SECRET=" + secret}}
	r.open()
	if r.d.Labels()["suspend"] == "" {
		t.Skip("this host does not freeze processes")
	}
	r.start()
	return r
}

// open opens the driver, as after a restart of the daemon.
func (r *rig) open() {
	r.Helper()
	r.d = r.h.Open(r.T)
	if _, err := r.d.Recover(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) start() {
	r.Helper()
	var err error
	if r.status, err = r.d.Start(r.Context(), r.task); err != nil {
		r.Fatal(err)
	}
	r.awaitCount(3)
}

func (r *rig) freeze(frozen bool) {
	r.Helper()
	began := time.Now()
	if err := r.d.Freeze(r.Context(), r.id, frozen); err != nil {
		r.Fatalf("Freeze %t: %v", frozen, err)
	}
	r.Logf("Freeze %t: %v", frozen, time.Since(began).Round(time.Millisecond))
}

// sh runs a command in the guest.
func (r *rig) sh(script string) string {
	r.Helper()
	x, err := r.d.Exec(r.Context(), r.id, driver.Exec{Command: []string{"sh", "-c", script}})
	if err != nil || x.Exit.Code != 0 {
		r.Fatalf("%s: exit %+v, want code 0, %v: %s", script, x.Exit, err, x.Stderr)
	}
	return strings.TrimSpace(string(x.Stdout))
}

// logs returns the machine's log.
func (r *rig) logs() (out []string) {
	r.Helper()
	err := r.d.Logs(r.Context(), r.id.Machine, driver.LogQuery{}, func(l driver.LogLine) error {
		out = append(out, l.Text)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// awaitCount waits until the machine has counted n numbers more, without a gap.
func (r *rig) awaitCount(n int) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	last, errEnough := len(r.logs())+n, errors.New("enough")
	next := 1
	err := r.d.Logs(ctx, r.id.Machine, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
		if l.Text != strconv.Itoa(next) {
			r.Fatalf("the machine has logged %q, want %d", l.Text, next)
		}
		if next++; next > last {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		r.Fatalf("the log ended with %d, want %d: %v", next-1, last, err)
	}
}

// snapshot returns the path of the machine's snapshot, which only the agent has open. It returns "" if there is none.
func (r *rig) snapshot() string {
	r.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(r.status.PID), "fd/*"))
	if err != nil {
		r.Fatal(err)
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(filepath.Base(target), "snapshot") && strings.HasSuffix(target, " (deleted)") {
			return file
		}
	}
	return ""
}

// beginFreeze begins to freeze the machine, and returns once its snapshot has been created. Until proceed is called, qemu is
// stopped, so the snapshot is not written.
func (r *rig) beginFreeze(ctx context.Context) (proceed func(), done <-chan error) {
	r.Helper()
	qemu, err := strconv.Atoi(r.children())
	if err != nil {
		r.Fatal(err)
	}
	r.signal(qemu, unix.SIGSTOP)
	result := make(chan error, 1)
	go func() { result <- r.d.Freeze(ctx, r.id, true) }()
	for deadline := time.Now().Add(time.Minute); r.snapshot() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatal("no snapshot file was created")
		}
	}
	return func() { r.signal(qemu, unix.SIGCONT) }, result
}

// fill fills a file system except for a few MiB, and returns a function that frees the space.
func fill(t *testing.T, dir string) (remove func()) {
	t.Helper()
	const rest = 8 << 20
	f, err := os.CreateTemp(dir, "filler")
	if err != nil {
		t.Fatal(err)
	}
	for err = unix.ENOSPC; errors.Is(err, unix.ENOSPC); { // while a snapshot takes the space, too
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
			t.Fatal(err)
		}
		err = unix.Fallocate(int(f.Fd()), 0, 0, max(1, int64(fs.Bavail)*fs.Bsize-rest))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// children returns the processes that the container's first process has started.
func (r *rig) children() string {
	r.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(r.status.PID), "task/*/children")) // any thread may have started a process
	if err != nil {
		r.Fatal(err)
	}
	all := ""
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // the thread may have ended
			r.Fatal(err)
		}
		all += string(data)
	}
	return strings.TrimSpace(all)
}

// guest returns what differs between two guests, and between two runs of a program.
func (r *rig) guest() string {
	r.Helper()
	return r.sh("cat /proc/sys/kernel/random/boot_id; pid=$(pidof sh | tr ' ' '\n' | sort -n | head -1); echo $pid; ls -l /proc/$pid/fd | grep -c /count")
}

// signal sends a signal to a process.
func (r *rig) signal(pid int, signal unix.Signal) {
	r.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		r.Fatal(err)
	}
}

// awaitProcess waits for a process with a command line in the container, and returns its PID.
func (r *rig) awaitProcess(args ...string) int {
	r.Helper()
	container, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(r.status.PID), "ns/pid"))
	if err != nil {
		r.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
		for _, p := range processes {
			line, _ := os.ReadFile(filepath.Join(p, "cmdline")) // the process may have ended
			if namespace, _ := os.Readlink(filepath.Join(p, "ns/pid")); namespace != container || string(line) != strings.Join(args, "\x00")+"\x00" {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(p))
			if err != nil {
				r.Fatal(err)
			}
			return pid
		}
	}
	r.Fatalf("no process %q", args)
	return 0
}

func (r *rig) checkClock() {
	r.Helper()
	seconds, err := strconv.ParseInt(r.sh("date +%s"), 10, 64)
	if off := time.Since(time.Unix(seconds, 0)); err != nil || off.Abs() > time.Minute {
		r.Errorf("the guest's clock is off by %v, want at most a minute, %v", off, err)
	}
}

// numbers is a stream in which a missing byte can be detected. As a reader, it is a trickle that lasts until end is
// closed. A faster stream would fill the guest's buffers, and no byte would arrive while a snapshot is written. As a
// writer, it fails at the first wrong byte.
type numbers struct {
	next int // number of bytes read or written
	end  chan struct{}
}

func (n *numbers) Read(b []byte) (int, error) {
	select {
	case <-n.end:
		return 0, io.EOF
	case <-time.After(time.Millisecond):
	}
	b = b[:min(len(b), 16)]
	for i := range b {
		b[i] = numberAt(n.next + i)
	}
	n.next += len(b)
	return len(b), nil
}

func (n *numbers) Write(b []byte) (int, error) {
	for i, c := range b {
		if c != numberAt(n.next) {
			return i, fmt.Errorf("byte %d is wrong", n.next)
		}
		n.next++
	}
	return len(b), nil
}

// numberAt returns a byte of a sequence that repeats itself only after 16 MiB.
func numberAt(i int) byte { return byte(i ^ i>>8 ^ i>>16) }

// TestSuspend checks that a suspended machine takes no memory, and continues when it is resumed.
func TestSuspend(t *testing.T) {
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Agent: agent(t)}
	server := containerdtest.Start(t)
	image := server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, containerdtest.Busybox(t), ocispec.ImageConfig{}))

	t.Run("a machine continues where it was", func(t *testing.T) {
		r := newRig(t, newHost(t, server.Address, machines), image)
		before := r.guest()
		input, output, ended := &numbers{end: make(chan struct{})}, &numbers{}, make(chan error, 1)
		go func() {
			_, err := r.d.Exec(t.Context(), r.id, driver.Exec{Command: []string{"cat"}, Stdin: input, Stdout: output})
			ended <- err
		}()
		for range 2 {
			r.sh("date -s @1000000000")
			r.freeze(true)
			if qemu := r.children(); qemu != "" {
				t.Errorf("a suspended machine has the processes %s, want none", qemu)
			}
			if use, err := r.d.Usage(t.Context(), r.id); err != nil || use.Memory > 64<<20 {
				t.Errorf("a suspended machine uses %d MiB, want at most 64, %v", use.Memory>>20, err)
			}
			if data, err := os.ReadFile(r.snapshot()); err != nil || bytes.Contains(data, []byte(secret)) {
				t.Errorf("the snapshot contains a secret in plain text, or reading it failed: %v", err)
			} else {
				t.Logf("the snapshot has %d MiB", len(data)>>20)
			}
			if _, err := r.d.Exec(t.Context(), r.id, driver.Exec{Command: []string{"true"}}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
				t.Errorf("a command in a suspended machine: %v, want failed_precondition", err)
			}
			r.freeze(false)
			if path := r.snapshot(); path != "" {
				t.Errorf("the snapshot %s still exists after it was used", path)
			}
			r.checkClock()
			r.awaitCount(5)
		}
		// The agent that asks for the resumption is killed, as if the container had run out of memory. The machine is
		// resumed nevertheless.
		r.freeze(true)
		r.signal(r.status.PID, unix.SIGSTOP)
		resumed := make(chan error, 1)
		go func() { resumed <- r.d.Freeze(t.Context(), r.id, false) }()
		r.signal(r.awaitProcess("/vmm/agent", "resume"), unix.SIGKILL)
		if err := <-resumed; bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("resumption whose agent was killed: %v, want unavailable", err)
		}
		r.signal(r.status.PID, unix.SIGCONT)
		r.freeze(false)
		r.awaitCount(5)
		if after := r.guest(); after != before {
			t.Errorf("the guest's boot id, its program's PID or its open files have changed; before:\n%s\nafter:\n%s", before, after)
		}
		close(input.end)
		if err := <-ended; err != nil || output.next != input.next {
			t.Errorf("a command that ran during the suspensions received %d bytes and returned %d, want all of them, %v", input.next, output.next, err)
		}
		t.Logf("%d bytes were sent through the machine", output.next)
		if lines := strings.Fields(r.sh("cat /count")); lines[0] != "1" || lines[len(lines)-1] != strconv.Itoa(len(lines)) {
			t.Errorf("the program's file contains %q, want the numbers from 1 without a gap", lines)
		}
		for _, frozen := range []bool{true, false} { // what the next daemon does after a suspension that the earlier one has begun
			ctx, cancel := context.WithCancel(t.Context())
			proceed, done := r.beginFreeze(ctx)
			cancel()
			if err := <-done; err == nil {
				t.Error("a canceled suspension succeeded")
			}
			proceed()
			r.open()
			r.freeze(frozen)
			r.open()
			r.freeze(false)
			r.awaitCount(5)
		}
		ctx, cancel := context.WithCancel(t.Context())
		proceed, done := r.beginFreeze(ctx)
		cancel()
		<-done
		proceed()
		for deadline := time.Now().Add(time.Minute); r.children() != ""; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("qemu still runs, want the agent to complete the suspension")
			}
		}
		r.open() // this daemon finds a machine that is suspended, and whose container is not frozen
		if err := r.d.Stop(t.Context(), r.id, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if exit, err := r.d.Wait(t.Context(), r.id); err != nil || exit.Signal != int(unix.SIGTERM) {
			t.Errorf("exit %+v, %v; want SIGTERM, which first resumes the machine", exit, err)
		}
	})

	t.Run("a changed snapshot", func(t *testing.T) {
		r := newRig(t, newHost(t, server.Address, machines), image)
		r.freeze(true)
		f, err := os.OpenFile(r.snapshot(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("damaged"), 10<<20)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Freeze(t.Context(), r.id, false); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("resume with a damaged snapshot: %v, want failed_precondition", err)
		}
		if exit, err := r.d.Wait(t.Context(), r.id); err != nil || exit.Code != 125 {
			t.Errorf("exit %+v, %v; want code 125", exit, err)
		}
		if log := r.logs(); !strings.Contains(log[len(log)-1], "restore the machine from its snapshot: ") {
			t.Errorf("the log's last line is %q, want the reason why the snapshot was not restored", log[len(log)-1])
		}
		if err := r.d.Destroy(t.Context(), r.id.Machine); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a disk without room", func(t *testing.T) {
		h := newHost(t, server.Address, machines)
		if err := os.Mkdir(h.cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		disk := filepath.Join(t.TempDir(), "disk")
		for _, command := range []string{"truncate -s 1G " + disk, "mkfs.ext4 -q " + disk, "mount -o loop " + disk + " " + h.cfg.Dir} {
			words := strings.Fields(command)
			if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Skipf("%s: %v: %s", command, err, out)
			}
		}
		t.Cleanup(func() {
			if err := unix.Unmount(h.cfg.Dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		r := newRig(t, h, image)
		remove := fill(t, h.cfg.Dir)
		err := r.d.Freeze(t.Context(), r.id, true)
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(bourse.MessageOf(err), "disk space") {
			t.Errorf("suspend on a full disk: %v, want failed_precondition because of the disk space", err)
		}
		r.awaitCount(5)
		remove()
		proceed, done := r.beginFreeze(t.Context())
		var file unix.Stat_t
		for deadline := time.Now().Add(time.Minute); file.Blocks*512 < int64(r.task.Limits.Memory)<<20; time.Sleep(time.Millisecond) {
			if err := unix.Stat(r.snapshot(), &file); err != nil || time.Now().After(deadline) {
				t.Fatalf("the snapshot's space is not reserved: %d bytes, %v", file.Blocks*512, err)
			}
		}
		remove = fill(t, h.cfg.Dir)
		proceed()
		if err := <-done; err != nil {
			t.Errorf("suspend while the disk becomes full: %v, want success, because the snapshot's space is reserved", err)
		}
		if err := unix.Stat(r.snapshot(), &file); err != nil || file.Blocks*512 > file.Size+1<<20 {
			t.Errorf("a snapshot of %d bytes occupies %d bytes on the disk, want at most 1 MiB more, %v", file.Size, file.Blocks*512, err)
		}
		remove()
		r.freeze(false)
		r.awaitCount(5)
		if err := r.d.Destroy(t.Context(), r.id.Machine); err != nil {
			t.Fatal(err)
		}
	})
}
