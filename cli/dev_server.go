package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	devBackoffFirst = 100 * time.Millisecond
	devBackoffMost  = 5 * time.Second // between starts of a server that does not become ready
	devTailLines    = 20              // of a server's errors, kept while it is being stopped
)

// devServer is one server of the cluster: a process that is started again
// whenever it dies, under the same name, on the same ports and files.
type devServer struct {
	name    string
	role    bourse.Role
	listen  string // as first asked for; afterwards what it got
	gossip  string
	args    []string // without those that change from start to start
	cluster *devCluster

	isReady chan struct{} // closed at the first readiness
	served  atomic.Bool   // its present life, or its last, came to be ready
	quit    chan struct{} // closed by the cluster: end
	ended   chan struct{} // closed when it has
}

func (d *devServer) init(c *devCluster) {
	d.cluster, d.gossip = c, "127.0.0.1:0"
	d.isReady, d.quit, d.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// run keeps the server running until quit.
func (d *devServer) run() {
	defer close(d.ended)
	backoff := devBackoffFirst
	for first := true; ; first = false {
		d.served.Store(false)
		err := d.once(first)
		select {
		case <-d.quit:
			return
		default:
		}
		if !isClosed(d.isReady) {
			err = bourse.Errorf(codeOfExit(err), "%s could not be started: %w", d.name, err)
			d.cluster.fail(hint(err, "what it said is above"))
			return
		}
		if d.served.Load() { // something ended it that has nothing to do with its start
			backoff = devBackoffFirst
		}
		d.cluster.shell.say(fmt.Sprintf("%s has ended (%v): starting it again", d.name, err))
		select {
		case <-d.quit:
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, devBackoffMost)
	}
}

// once runs the server's process until it ends or quit does it.
func (d *devServer) once(first bool) error {
	c, err := selfCommand(d.commandLine()...)
	if err != nil {
		return err
	}
	c.WaitDelay = time.Second // its own children may hold its pipes open
	lifeline, err := c.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	stdout, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	errors := &namedLines{name: d.name, to: d.cluster.shell.Err, quit: d.quit}
	c.Stderr = errors
	if err := c.Start(); err != nil {
		return err
	}
	var reading sync.WaitGroup
	reading.Go(func() { d.listenTo(stdout, first) })
	ended := make(chan error, 1)
	go func() {
		reading.Wait() // before Wait, which closes the pipe
		ended <- c.Wait()
	}()
	select {
	case err := <-ended:
		errors.flush()
		return err
	case <-d.quit:
		d.end(c.Process, ended)
		return nil
	}
}

// commandLine gives the arguments for the next start.
func (d *devServer) commandLine() []string {
	out := append(slices.Clip(d.args), "--listen", d.listen, "--life-line")
	out = append(out, "--cluster", d.cluster.name)
	if d.role == RoleNATS {
		return out
	}
	out = append(out, "--name", d.name, "--log-level", d.cluster.config.logLevel)
	if d.cluster.nats != nil {
		return append(out, "--nats", "nats://"+d.cluster.nats.listen)
	}
	out = append(out, "--gossip", d.gossip)
	if others := d.cluster.others(d.name); len(others) > 0 {
		out = append(out, "--join", strings.Join(others, ","))
	}
	return out
}

// listenTo reads the server's standard output: its first line says that it is
// ready.
func (d *devServer) listenTo(stdout io.Reader, first bool) {
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	var r Ready
	if err == nil && json.Unmarshal(line, &r) == nil {
		if d.cluster.nats == nil || d.role != bourse.RoleWorker { // a worker on NATS listens nowhere
			d.listen, d.gossip = r.API, r.Gossip
		}
		r.ID = d.name
		d.served.Store(true)
		d.cluster.said(r, first)
		if first {
			close(d.isReady)
		}
	}
	_, _ = io.Copy(io.Discard, lines)
}

// end asks the process to end, and kills it when it does not.
func (d *devServer) end(p *os.Process, ended <-chan error) {
	_ = p.Signal(syscall.SIGTERM) // it may have ended meanwhile
	select {
	case err := <-ended:
		if err != nil {
			d.cluster.shell.say(fmt.Sprintf("%s ended badly (%v)", d.name, err))
		}
		return
	case <-time.After(devPatience):
	}
	d.cluster.shell.say(d.name + " does not end: killing it")
	_ = p.Kill()
	<-ended
}

// codeOfExit gives the code that a server's exit status stands for.
func codeOfExit(err error) bourse.Code {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return bourse.CodeInternal
	}
	for _, code := range bourse.Codes() {
		if exits[code] == exit.ExitCode() {
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

// namedLines shows what a server writes to standard error, each line with its
// name. While the cluster is being stopped servers miss one another; what
// they say then is dropped.
type namedLines struct {
	name string
	to   io.Writer
	quit <-chan struct{}

	rest []byte // an unfinished line
}

// Write is called from one goroutine at a time.
func (n *namedLines) Write(p []byte) (int, error) {
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

func (n *namedLines) flush() {
	if len(n.rest) > 0 {
		n.show(string(n.rest))
		n.rest = nil
	}
}

func (n *namedLines) show(line string) {
	if !isClosed(n.quit) {
		fmt.Fprintf(n.to, "%s: %s\n", n.name, clean(line))
	}
}
