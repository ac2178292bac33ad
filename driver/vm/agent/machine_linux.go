package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// machine is a virtual machine and the connection to its guest.
type machine struct {
	config  session.Machine
	held    []*os.File // open until this process ends
	console tail
	guest   *yamux.Session
	port    *os.File           // qemu's end of the connection to the guest; it stays open while the machine is suspended
	orders  chan session.Order // orders to the machine's program

	mu       sync.Mutex // held while suspending or resuming the machine
	vmm      *vmm       // the running qemu
	snapshot *snapshot  // nil unless the machine is suspended

	requests sync.WaitGroup // suspend and resume requests in progress

	die    sync.Once
	dead   chan struct{} // closed if the machine ends before its program has exited
	reason error         // why the machine ended; set before dead is closed
}

// runMachine starts qemu, runs the machine's program in the guest, and returns its exit code. This process is the
// container's first process, so the kernel kills qemu when this process exits. By then, the guest has written all
// persistent data to its volumes.
func runMachine() (int, error) {
	m := &machine{dead: make(chan struct{})}
	defer m.awaitReplies()
	exit, err := m.run()
	if err != nil {
		report := session.Report{Error: err.Error()}
		if start, ok := errors.AsType[*session.StartError](err); ok {
			report.Invalid = start.Invalid
		}
		m.report(report)
		return failed, err
	}
	if exit.OutOfMemory {
		writeJSON(session.ExitFile, exit)
	}
	return exit.Code, nil
}

func (m *machine) run() (session.Exit, error) {
	data, err := os.ReadFile(session.MachineFile)
	if err != nil {
		return session.Exit{}, err
	}
	if err := json.Unmarshal(data, &m.config); err != nil {
		return session.Exit{}, fmt.Errorf("read the machine's configuration: %w", err)
	}
	if m.held, err = holdDevices(m.config.Devices); err != nil {
		return session.Exit{}, err
	}
	execs, err := listen(session.ExecSocket)
	if err != nil {
		return session.Exit{}, err
	}
	control, err := listen(session.ControlSocket)
	if err != nil {
		return session.Exit{}, err
	}
	var conn *net.UnixConn
	if conn, m.port, err = socketPair(); err != nil {
		return session.Exit{}, err
	}
	if m.guest, err = yamux.Client(conn, session.Multiplexer()); err != nil {
		return session.Exit{}, err
	}
	if m.vmm, err = m.start(nil); err != nil {
		return session.Exit{}, err
	}
	go m.serveExecs(execs)
	var restore func()
	m.orders, restore = follow(m.config.Program.Terminal)
	defer restore()
	go m.serveControl(control)
	if m.config.Program.Terminal {
		m.config.Program.Size = sizeOf(os.Stdin)
	}
	streams := session.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	exit, err := session.Run(m.dial, m.config.Program, streams, m.orders, func() { m.report(session.Report{Started: true}) })
	var start *session.StartError
	if err != nil && !errors.As(err, &start) {
		err = m.explain(err)
	}
	return exit, err
}

// listen creates a socket in the machine's directory, replacing an earlier one.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path})
}

// socketPair returns the two ends of a connection: one for this process, and one to pass to qemu.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}

// vmm is a running qemu.
type vmm struct {
	cmd      *exec.Cmd
	monitor  *monitor
	ended    chan struct{} // closed when qemu has exited
	expected atomic.Bool   // whether the machine survives qemu's exit, because qemu is being killed or has not restored the guest yet
}

// start starts qemu. If snapshot is not nil, qemu reads the machine's state from it and then waits for the "cont"
// command.
func (m *machine) start(snapshot *os.File) (*vmm, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	args, files := m.config.VMM[1:], []*os.File{m.port, theirs}
	if snapshot != nil {
		args, files = append(slices.Clone(args), "-S", "-incoming", fmt.Sprintf("fd:%d", session.SnapshotFD)), append(files, snapshot)
	}
	v := &vmm{cmd: exec.Command(m.config.VMM[0], args...), ended: make(chan struct{})} //nolint:noctx // see runMachine
	v.cmd.Stdout, v.cmd.Stderr, v.cmd.ExtraFiles = &m.console, &m.console, files
	v.expected.Store(snapshot != nil)
	err = v.cmd.Start()
	_ = theirs.Close() // qemu has its own copy; the connection now breaks when qemu exits
	if err != nil {
		return nil, fmt.Errorf("start the virtual machine: %w", errors.Join(err, conn.Close()))
	}
	go func() {
		_ = v.cmd.Wait() // the console's last lines contain the reason
		close(v.ended)
		if !v.expected.Load() {
			m.end(fmt.Errorf("the virtual machine ended unexpectedly (%s); its last output: %s", v.cmd.ProcessState, m.console.text()))
		}
	}()
	if v.monitor, err = newMonitor(conn); err != nil {
		err = errors.Join(m.explain(err), conn.Close())
		_ = v.cmd.Process.Kill() // an error means that it has ended
		return nil, err
	}
	return v, nil
}

// end records that the machine has ended, and why. It must be called after qemu has exited. Data that the guest has
// already sent can still be read; after that, reads from the guest return EOF.
func (m *machine) end(reason error) {
	m.die.Do(func() {
		m.reason = reason
		close(m.dead)
		_ = m.port.Close() // qemu's copy is closed as well, so this ends the connection
	})
}

// explain returns the reason why the machine ended. If the machine does not end within a second, explain instead
// returns err with the console's last lines added.
func (m *machine) explain(err error) error {
	select {
	case <-m.dead:
		return m.reason
	case <-time.After(time.Second):
		return fmt.Errorf("the guest is not responding: %w; the virtual machine's last output: %s", err, m.console.text())
	}
}

// kill kills qemu without ending the machine, and waits until qemu has exited.
func (v *vmm) kill() {
	v.expected.Store(true)
	_ = v.cmd.Process.Kill() // an error means that it has ended
	<-v.ended
	_ = v.monitor.conn.Close() // nothing is left to read
}

func (m *machine) dial() (session.Stream, error) {
	s, err := m.guest.OpenStream()
	if err != nil {
		return nil, err
	}
	return guestStream{s}, nil
}

// guestStream is a stream to the guest. It implements CloseWrite with yamux's Close, which closes only the caller's
// direction.
type guestStream struct{ *yamux.Stream }

func (s guestStream) CloseWrite() error { return s.Stream.Close() }

// serveExecs connects each "agent exec" process to a new stream to the guest.
func (m *machine) serveExecs(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			s, err := m.guest.OpenStream()
			if err != nil {
				return
			}
			var both sync.WaitGroup
			both.Go(func() { _, _ = io.Copy(s, conn); _ = s.Close() })
			both.Go(func() {
				_, _ = io.Copy(conn, s)
				_ = conn.CloseWrite()
				_, _ = io.Copy(io.Discard, s) // even if the "agent exec" was killed, the guest must be able to finish sending
			})
			both.Wait()
		}()
	}
}

// report writes the machine's status for the driver, unless a status has already been written.
func (m *machine) report(r session.Report) {
	if _, err := os.Stat(session.StatusFile); err == nil {
		return
	}
	writeJSON(session.StatusFile, r)
}

// writeJSON writes a file atomically. If that fails, it only prints the error; the driver notices that the file is
// missing.
func writeJSON(path string, value any) {
	data, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bourse: write %s: %v\n", filepath.Base(path), err)
	}
}

// tail stores the last tailSize bytes written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b...)
	if n := len(t.data) - tailSize; n > 0 {
		t.data = append(t.data[:0], t.data[n:]...)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.data), "?")), " ")
	if text == "" {
		return "none"
	}
	return text
}
