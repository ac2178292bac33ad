package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffLimit = 5 * time.Second // maximum delay before a server is started again
)

// child runs one server in a child process, which executes this program again. It restarts
// the process whenever it exits.
type child struct {
	name      string
	args      func() []string  // returns the arguments for the next start
	config    func() []byte    // returns the configuration file's text for the next start; nil if the server does not use it
	announced func(Ready)      // called each time the server becomes ready
	failed    func(error) bool // reports whether to give up after a process exited before it was ready
	timeout   time.Duration    // how long the process may take to exit before it is killed

	shell  *cli.Shell
	served atomic.Bool   // whether the current or latest process became ready
	quit   chan struct{} // closed by the owner to stop the process
	again  chan struct{} // receives a value when the process must be restarted, because its settings have changed
}

func (c *child) init(s *cli.Shell) {
	c.shell, c.quit, c.again, c.timeout = s, make(chan struct{}), make(chan struct{}, 1), stopTimeout
}

// restart makes run restart the process. It returns immediately. Further calls have no
// effect until the process starts again.
func (c *child) restart() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// run keeps the process running until quit is closed. If the process exits before it is
// ready, run calls c.failed; if c.failed returns true, run returns an error instead of
// restarting the process.
func (c *child) run() error {
	backoff := backoffFirst
	for {
		c.served.Store(false)
		err := c.runOnce()
		if isClosed(c.quit) {
			return nil
		}
		if errors.Is(err, errChanged) {
			backoff = backoffFirst
			continue
		}
		if c.served.Load() { // the process had become ready, so the delay starts from its minimum again
			backoff = backoffFirst
		} else if c.failed(err) {
			return cmp.Or(err, errEndedEarly)
		}
		c.shell.Note(fmt.Sprintf("%s has exited (%v); restarting it", c.name, err))
		select {
		case <-c.quit:
			return nil
		case <-c.again:
			backoff = backoffFirst
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffLimit)
		}
	}
}

// errEndedEarly is returned by run if a process exited with status 0 before it was ready.
var errEndedEarly = errors.New("it exited before it was ready")

// errChanged is returned by runOnce if it stopped the process because the settings have
// changed.
var errChanged = errors.New("its settings have changed")

// configFD is the file descriptor from which a server reads the text of its configuration.
// It is the first descriptor after the standard streams.
const configFD = 3

// runOnce starts the process and waits until it exits. It stops the process if the settings
// change or if quit is closed.
func (c *child) runOnce() error {
	cmd, err := selfCommand(c.args()...)
	if err != nil {
		return err
	}
	cmd.WaitDelay = time.Second // the process's own children may keep its pipes open
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, notifySocket+"=") // the owner notifies systemd once all servers are ready
	})
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	cmd.Stdout = &readyLine{of: c}
	output := &prefixWriter{name: c.name, to: c.shell.Err, quit: c.quit}
	cmd.Stderr = output
	sent, err := c.start(cmd)
	if err != nil {
		return err
	}
	defer func() { <-sent }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		output.flush()
		return err
	case <-c.again:
		c.end(cmd.Process, ended, output)
		return errChanged
	case <-c.quit:
		c.end(cmd.Process, ended, output)
		return nil
	}
}

// start starts the process, which receives the configuration through a pipe. Settings may
// contain passwords, so they must not appear on the command line. sent is closed once the
// process has read the configuration or has exited.
func (c *child) start(cmd *exec.Cmd) (sent <-chan struct{}, err error) {
	done := make(chan struct{})
	if c.config == nil {
		close(done)
		return done, cmd.Start()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create a pipe: %w", err)
	}
	cmd.ExtraFiles = []*os.File{r} // the child inherits r as configFD
	text := c.config()
	err = cmd.Start()
	_ = r.Close() // the process has its own copy
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	go func() {
		defer close(done)
		_, _ = w.Write(text) // fails if the process has exited, which is reported anyway
		_ = w.Close()
	}()
	return done, nil
}

// readyLine receives a process's standard output, whose first line reports that the process
// is ready. The rest is discarded.
type readyLine struct {
	of   *child
	line []byte
	read bool
}

// Write implements io.Writer.
func (l *readyLine) Write(p []byte) (int, error) {
	if l.read {
		return len(p), nil
	}
	before, _, whole := bytes.Cut(p, []byte("\n"))
	if l.line = append(l.line, before...); !whole {
		return len(p), nil
	}
	l.read = true
	var r Ready
	if json.Unmarshal(l.line, &r) == nil {
		l.of.served.Store(true)
		l.of.announced(r)
	}
	return len(p), nil
}

// end asks the process to exit, and kills it if it has not exited after c.timeout.
func (c *child) end(p *os.Process, ended <-chan error, said *prefixWriter) {
	_ = p.Signal(syscall.SIGTERM) // the process may have exited already
	select {
	case err := <-ended:
		if err != nil {
			c.shell.Note(fmt.Sprintf("%s failed while stopping (%v)", c.name, err))
			said.printStored()
		}
		return
	case <-time.After(c.timeout):
	}
	c.shell.Note(c.name + " does not stop; killing it")
	_ = p.Kill()
	<-ended
	said.printStored()
}

// codeOfExit returns the error code that a server's exit status stands for.
func codeOfExit(err error) bourse.Code {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return bourse.CodeInternal
	}
	for _, code := range bourse.Codes() {
		if code.ExitStatus() == exit.ExitCode() {
			return code
		}
	}
	return bourse.CodeInternal
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// prefixWriter copies a server's standard error, with the server's name before each line.
// While the cluster is stopping, servers log errors about other servers that have already
// stopped. During that time, prefixWriter stores only the last lines, which are printed
// if the server fails.
type prefixWriter struct {
	name string
	to   io.Writer
	quit <-chan struct{}

	rest []byte // the beginning of a line that is not complete yet
	last []string
}

// maxStoredLines is the number of lines that are stored while a server is being stopped.
const maxStoredLines = 5

// Write is called from one goroutine at a time.
func (n *prefixWriter) Write(p []byte) (int, error) {
	n.rest = append(n.rest, p...)
	for {
		line, rest, ok := strings.Cut(string(n.rest), "\n")
		if !ok {
			return len(p), nil
		}
		n.rest = []byte(rest)
		n.show(line)
	}
}

func (n *prefixWriter) flush() {
	if len(n.rest) > 0 {
		n.show(string(n.rest))
		n.rest = nil
	}
}

func (n *prefixWriter) show(line string) {
	line = fmt.Sprintf("%s: %s\n", n.name, cli.Clean(line))
	if !isClosed(n.quit) {
		_, _ = io.WriteString(n.to, line)
		return
	}
	if n.last = append(n.last, line); len(n.last) > maxStoredLines {
		n.last = n.last[1:]
	}
}

// printStored prints the stored lines of a server that has exited.
func (n *prefixWriter) printStored() {
	n.flush()
	_, _ = io.WriteString(n.to, strings.Join(n.last, ""))
}
