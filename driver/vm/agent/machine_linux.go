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
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// machine is a virtual machine and the connection to its guest.
type machine struct {
	config  session.Machine
	qemu    *exec.Cmd
	held    []*os.File // open until this process ends
	console tail
	ended   chan struct{} // closed when qemu has ended
	guest   *yamux.Session
}

// runMachine starts qemu, runs the machine's program in the guest, and returns its exit code.
func runMachine() (int, error) {
	m := &machine{ended: make(chan struct{})}
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
	port, err := listen(session.GuestSocket)
	if err != nil {
		return session.Exit{}, err
	}
	execs, err := listen(session.ExecSocket)
	if err != nil {
		return session.Exit{}, err
	}
	if err := m.start(port); err != nil {
		return session.Exit{}, err
	}
	defer m.kill()
	go m.serveExecs(execs)
	orders, restore := follow(m.config.Program.Terminal)
	defer restore()
	if m.config.Program.Terminal {
		m.config.Program.Size = sizeOf(os.Stdin)
	}
	streams := session.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	exit, err := session.Run(m.dial, m.config.Program, streams, orders, func() { m.report(session.Report{Started: true}) })
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

// start starts qemu, and accepts its connection to the guest's port.
func (m *machine) start(port *net.UnixListener) error {
	defer port.Close()
	m.qemu = exec.Command(m.config.VMM[0], m.config.VMM[1:]...) //nolint:noctx // it ends with this process, which is the first one in the container
	m.qemu.Stdout, m.qemu.Stderr = &m.console, &m.console
	if err := m.qemu.Start(); err != nil {
		return fmt.Errorf("start the virtual machine: %w", err)
	}
	go func() {
		_ = m.qemu.Wait() // the console's last lines contain the reason
		close(m.ended)
		_ = port.Close()
	}()
	conn, err := port.Accept()
	if err != nil {
		return m.explain(err)
	}
	m.guest, err = yamux.Client(conn, session.Multiplexer())
	return err
}

// explain returns the error of a machine whose guest does not answer.
func (m *machine) explain(err error) error {
	select {
	case <-m.ended:
		return fmt.Errorf("the virtual machine has ended unexpectedly (%s); its last output: %s", m.qemu.ProcessState, m.console.text())
	case <-time.After(time.Second):
		return fmt.Errorf("the guest does not answer: %w; the virtual machine's last output: %s", err, m.console.text())
	}
}

// kill ends qemu. The guest has already written everything that outlives the machine.
func (m *machine) kill() {
	_ = m.qemu.Process.Kill() // an error means that it has ended
	<-m.ended
}

func (m *machine) dial() (session.Stream, error) {
	s, err := m.guest.OpenStream()
	if err != nil {
		return nil, err
	}
	return guestStream{s}, nil
}

// guestStream is a stream to the guest. Closing a yamux stream ends only the caller's direction.
type guestStream struct{ *yamux.Stream }

func (s guestStream) CloseWrite() error { return s.Stream.Close() }

// serveExecs connects each connection of an "agent exec" with a stream to the guest.
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
				_, _ = io.Copy(io.Discard, s) // the agent may have been killed; the guest must be able to finish
			})
			both.Wait()
		}()
	}
}

// report writes the machine's status for the driver. The first report stays.
func (m *machine) report(r session.Report) {
	if _, err := os.Stat(session.StatusFile); err == nil {
		return
	}
	writeJSON(session.StatusFile, r)
}

// writeJSON writes a file in one step. The driver waits for the file, and reports its absence.
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

// tail stores the last bytes written to it.
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
