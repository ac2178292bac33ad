package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// reaper starts programs and reaps all of the guest's processes. It reports the exit codes of the programs that it
// started.
type reaper struct {
	mu      sync.Mutex // held while starting a process, so that its exit isn't missed
	waiting map[int]chan<- int
	closing bool     // no more programs may be started
	group   *os.File // the cgroup of all programs; nil if there is none
}

func (r *reaper) groupFD() int {
	if r.group == nil {
		return 0
	}
	return int(r.group.Fd())
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan<- int{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		for range signals {
			r.reap()
		}
	}()
	return r
}

// close makes all later calls to start fail.
func (r *reaper) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		exited, ok := r.waiting[pid]
		if !ok {
			continue
		}
		delete(r.waiting, pid)
		if status.Signaled() {
			exited <- 128 + int(status.Signal())
		} else {
			exited <- status.ExitStatus()
		}
	}
}

// process is a running program.
type process struct {
	pid      int
	exited   chan int // receives the exit code
	ended    atomic.Bool
	terminal *os.File // nil if the program has none
	outputs  []output
}

// output is one of a program's outputs, which the guest copies to a stream.
type output struct {
	file *os.File
	done chan struct{} // closed when all output has been copied
}

// start starts a program and copies data between its files and the streams.
func (r *reaper) start(program session.Program, in *session.First, streams map[session.Kind]*yamux.Stream) (*process, error) {
	if in.MakeDir {
		_ = os.MkdirAll(in.Dir, 0o755) // if that fails, so does the next check
	}
	if info, err := os.Stat(in.Dir); err != nil || !info.IsDir() {
		return nil, orderError(fmt.Sprintf("directory %q is not in the image", in.Dir))
	}
	path, err := lookPath(program.Args[0], in)
	if err != nil {
		return nil, err
	}
	p := &process{exited: make(chan int, 1)}
	files, copying, err := p.connect(program, in, streams)
	defer func() {
		for _, f := range files {
			_ = f.Close() // the program has its own descriptors
		}
	}()
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{
		Dir: in.Dir, Env: environment(program, in), Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys: &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: in.UID, Gid: in.GID, Groups: in.Groups},
			Setsid:     true, Setctty: program.Terminal, UseCgroupFD: r.group != nil, CgroupFD: r.groupFD(),
		},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, errors.New("the guest is shutting down")
	}
	if p.pid, err = syscall.ForkExec(path, program.Args, attr); err != nil {
		return nil, orderError(fmt.Sprintf("start %q: %v", program.Args[0], err))
	}
	r.waiting[p.pid] = p.exited
	for _, do := range copying {
		go do()
	}
	return p, nil
}

// lookPath returns the path of a program. A name without a slash is looked up in the directories listed in $PATH.
func lookPath(name string, in *session.First) (string, error) {
	dirs := []string{""}
	if !strings.Contains(name, "/") {
		dirs = filepath.SplitList(variable(in.Env, "PATH"))
	}
	err := error(fs.ErrNotExist)
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			path = filepath.Join(in.Dir, path)
		}
		info, statErr := os.Stat(path)
		switch {
		case statErr != nil:
		case info.IsDir() || info.Mode()&0o111 == 0:
			err = fs.ErrPermission
		default:
			return path, nil
		}
	}
	return "", orderError(fmt.Sprintf("start %q: %v", name, err))
}

// environment returns a program's environment. If $HOME is not set, environment sets it to the home directory of the
// program's user.
func environment(program session.Program, in *session.First) []string {
	out := slices.Clone(in.Env)
	if program.Term != "" {
		out = slices.DeleteFunc(out, func(e string) bool { return strings.HasPrefix(e, "TERM=") })
		out = append(out, "TERM="+program.Term)
	}
	if variable(out, "HOME") == "" {
		out = append(out, "HOME="+home(in.UID))
	}
	return out
}

// variable returns the value of a variable in env, or "" if it is not set.
func variable(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// home returns a user's home directory, or "/" if /etc/passwd does not list the user.
func home(uid uint32) string {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return "/"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) > 5 && fields[2] == strconv.FormatUint(uint64(uid), 10) {
			return fields[5]
		}
	}
	return "/"
}

// connect creates the program's stdin, stdout and stderr. It returns these files and the functions that copy
// data between their other ends and the streams. The caller must close the files, even after an error.
func (p *process) connect(program session.Program, in *session.First, streams map[session.Kind]*yamux.Stream) (files []*os.File, copying []func(), err error) {
	send := func(from *os.File, kind session.Kind) {
		o := output{file: from, done: make(chan struct{})}
		p.outputs = append(p.outputs, o)
		copying = append(copying, func() { defer close(o.done); o.copy(streams[kind]) })
	}
	receive := func(to *os.File) {
		copying = append(copying, func() {
			_, _ = io.Copy(to, streams[session.Stdin]) // an error means that the program no longer reads
			if !program.Terminal {
				_ = to.Close()
			}
		})
	}
	if program.Terminal {
		master, slave, err := openTerminal(program.Size)
		if err != nil {
			return nil, nil, err
		}
		if err := slave.Chown(int(in.UID), -1); err != nil {
			return []*os.File{slave}, nil, err
		}
		p.terminal = master
		send(master, session.Stdout)
		if program.Stdin {
			receive(master)
		}
		return []*os.File{slave, slave, slave}, copying, nil
	}
	stdin, err := os.Open(os.DevNull)
	if program.Stdin {
		var w *os.File
		if stdin, w, err = os.Pipe(); err == nil {
			receive(w)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	files = append(files, stdin)
	for _, kind := range []session.Kind{session.Stdout, session.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return files, nil, err
		}
		files = append(files, w)
		send(r, kind)
	}
	for _, f := range files { // so that the program can open /dev/stdout
		if err := f.Chown(int(in.UID), int(in.GID)); err != nil && f.Name() != os.DevNull {
			return files, nil, err
		}
	}
	return files, copying, nil
}

// drainTime is how long to read output from a program that has exited, if its children hold the output open.
const drainTime = 100 * time.Millisecond

// finish waits until the program's output has been copied. If all is true, every other process has been killed, so the
// output is guaranteed to end. Otherwise, background processes may hold the output open, and finish waits at most
// drainTime for each output to end.
func (p *process) finish(all bool) {
	for _, o := range p.outputs {
		if !all {
			_ = o.file.SetReadDeadline(time.Now().Add(drainTime))
		}
		<-o.done
		_ = o.file.Close()
	}
}

// copy sends output until the output ends or its read deadline passes. If the deadline passes, copy first sends the
// data that remains in the pipe.
func (o output) copy(to *yamux.Stream) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := o.file.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(to, buffer)
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				_, _ = io.Copy(io.Discard, o.file) // so that the program isn't blocked
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drain sends the data that an exited program has left in the pipe.
func (o output) drain(to io.Writer, buffer []byte) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	const pipeSize = 1 << 20 // the maximum
	for sent := 0; sent <= pipeSize; {
		n := 0
		_ = raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buffer) }) // fails only if the file is closed
		if n <= 0 || err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		sent += n
	}
}

// obey executes the host's orders for a program. If the control stream ends before the program does, obey kills the
// processes in the program's session.
func (p *process) obey(control io.Reader) {
	for {
		var o session.Order
		if err := session.Read(control, session.MaxShort, &o); err != nil {
			for !p.ended.Load() && p.killSession() { // processes may fork while they are being killed
				time.Sleep(time.Millisecond)
			}
			return
		}
		if o.Signal > 0 {
			_ = unix.Kill(p.pid, unix.Signal(o.Signal)) // fails if it has ended
		}
		if o.Size != (session.Size{}) && p.terminal != nil {
			_ = setSize(p.terminal, o.Size)
		}
		if o.Resumed != nil {
			if err := resumed(o.Resumed); err != nil {
				fmt.Fprintln(os.Stderr, "bourse: set the clock and reseed random numbers after resuming:", err)
			}
		}
	}
}

// killSession kills the processes in the program's session and reports whether there were any.
func (p *process) killSession() (found bool) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // a program's name may contain parentheses
		if len(fields) < 4 || fields[0] == "Z" || fields[3] != strconv.Itoa(p.pid) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return found
}

// openTerminal creates a terminal.
func openTerminal(size session.Size) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/pts/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var number int
	err = control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if err == nil && size != (session.Size{}) {
		err = setSize(master, size)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), master.Close())
	}
	return master, slave, nil
}

func setSize(terminal *os.File, size session.Size) error {
	return control(terminal, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// control calls a function with a file's descriptor, which stays valid during the call.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	if err := raw.Control(func(fd uintptr) { callErr = call(int(fd)) }); err != nil {
		return err
	}
	return callErr
}
