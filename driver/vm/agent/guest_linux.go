package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// guest is the main function of a virtual machine's process 1. When it is done, it powers off the machine.
func guest() {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, "bourse: the guest panicked:", p)
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // if that fails, process 1 exits, which makes the kernel panic
	}()
	fmt.Fprintln(os.Stderr, "bourse: the guest failed:", serveGuest()) // to the console; the host reports the console's last lines
}

// serveGuest runs the programs that the host requests, until the connection to the host breaks. It always returns an
// error.
func serveGuest() error {
	if err := mountKernel(""); err != nil {
		return err
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	host, err := yamux.Server(port, session.Multiplexer())
	if err != nil {
		return err
	}
	g := &guestServer{reaper: newReaper(), sessions: map[string]*guestSession{}}
	for {
		s, err := host.AcceptStream()
		if err != nil {
			return fmt.Errorf("connection to the host: %w", err)
		}
		go g.accept(s)
	}
}

// openPort opens the connection to the host. It retries, because the device appears shortly after its module is loaded.
func openPort() (*os.File, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(session.GuestPort, os.O_RDWR, 0)
		if err == nil || !errors.Is(err, os.ErrNotExist) || time.Since(began) > 10*time.Second {
			return f, err
		}
	}
}

// guestServer runs the programs that the host requests.
type guestServer struct {
	reaper *reaper

	mu       sync.Mutex
	first    *session.First
	sessions map[string]*guestSession
}

// guestSession collects the streams of one program.
type guestSession struct {
	streams map[session.Kind]*yamux.Stream
	ready   chan struct{} // receives a value for each stream
}

func (g *guestServer) session(id string) *guestSession {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[id]
	if s == nil {
		s = &guestSession{streams: map[session.Kind]*yamux.Stream{}, ready: make(chan struct{}, 4)}
		g.sessions[id] = s
	}
	return s
}

// accept reads a stream's first message and adds the stream to its session. If the stream is the session's control
// stream, accept runs the program.
func (g *guestServer) accept(stream *yamux.Stream) {
	var open session.Open
	if err := session.Read(stream, session.MaxShort, &open); err != nil {
		_ = stream.Close()
		return
	}
	if open.Kind == session.Sync {
		g.sync()
		_ = stream.Close()
		return
	}
	s := g.session(open.Session)
	if open.Kind != session.Control {
		g.mu.Lock()
		s.streams[open.Kind] = stream
		g.mu.Unlock()
		s.ready <- struct{}{}
		return
	}
	if err := g.run(stream, s); err != nil {
		_ = session.Write(stream, session.Report{Error: err.Error(), Invalid: invalid(err)})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, open.Session)
	_ = stream.Close()
	for _, s := range s.streams {
		_ = s.Close()
		go func() { _, _ = io.Copy(io.Discard, s) }() // the host may still be sending; a stream is released once both ends have closed it
	}
}

// sync flushes the volumes' data to their disks.
func (g *guestServer) sync() {
	g.mu.Lock()
	first := g.first
	g.mu.Unlock()
	if first != nil {
		syncVolumes(first.Boot.Volumes)
	}
}

// openTimeout is how long run waits for each of a session's streams.
const openTimeout = time.Minute

// orderError is an error that the order caused, for example by naming a program that does not exist.
type orderError string

func (e orderError) Error() string { return string(e) }

func invalid(err error) bool {
	var e orderError
	return errors.As(err, &e)
}

// run runs a session's program and reports its start and exit to the host. If the program was not started, run returns
// an error, which the caller must report.
func (g *guestServer) run(control *yamux.Stream, s *guestSession) error {
	var program session.Program
	if err := session.Read(control, session.MaxProgram, &program); err != nil {
		return err
	}
	want := 2
	if program.Terminal {
		want--
	}
	if program.Stdin {
		want++
	}
	for range want {
		select {
		case <-s.ready:
		case <-time.After(openTimeout):
			return errors.New("one of the program's streams was not opened in time")
		}
	}
	main := program.First != nil
	first, err := g.context(program.First)
	if err != nil {
		return err
	}
	p, err := g.reaper.start(program, first, s.streams)
	if err != nil {
		return err
	}
	if err := session.Write(control, session.Report{Started: true}); err != nil {
		return err
	}
	if main {
		go passSignals(p.pid)
	}
	go p.obey(control)
	code := <-p.exited
	p.ended.Store(true)
	if main {
		g.reaper.close()                // a program started after this could use a volume
		_ = unix.Kill(-1, unix.SIGKILL) // all processes except this one
	}
	p.finish(main)
	if main {
		unmountVolumes(first.Boot.Volumes)
	}
	return session.Write(control, session.Report{Exit: &session.Exit{Code: code, OutOfMemory: outOfMemory()}})
}

// passSignals forwards the signals that this process receives to the first program. In a container, the first program
// is process 1, so programs signal process 1 to reach it. In the guest, this process is process 1.
func passSignals(pid int) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	for s := range signals {
		if n, ok := s.(syscall.Signal); ok && n != unix.SIGCHLD && n != unix.SIGURG && n != unix.SIGPIPE {
			_ = unix.Kill(pid, n) // fails if the program has ended
		}
	}
}

// context returns the settings that all programs share. For the first program, it also sets up the guest.
func (g *guestServer) context(first *session.First) (*session.First, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first != nil && g.first == nil {
		if err := boot(&first.Boot); err != nil {
			return nil, err
		}
		if limit := first.Boot.Processes; limit > 0 {
			group, err := limitProcesses(limit)
			if err != nil {
				return nil, err
			}
			g.reaper.group = group
		}
		g.first = first
	}
	if g.first == nil {
		return nil, errors.New("the guest has not run its first program yet")
	}
	return g.first, nil
}

// outOfMemory reports whether the guest's kernel has killed a process because the guest ran out of memory.
func outOfMemory() bool {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}
