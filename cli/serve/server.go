package serve

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
	"github.com/bourse-dev/bourse/cli"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffLimit = 5 * time.Second // between starts of a server that does not become ready
)

// server is one server of the cluster: a process that is started again
// whenever it dies, under the same name, on the same ports and files.
type server struct {
	name    string
	role    bourse.Role
	listen  string // as first asked for; afterwards what it got
	gossip  string
	http    string   // of a proxy, as listen
	https   string   // the same
	args    []string // without those that change from start to start
	cluster *cluster

	isReady chan struct{} // closed at the first readiness
	served  atomic.Bool   // its present life, or its last, came to be ready
	quit    chan struct{} // closed by the cluster: end
	ended   chan struct{} // closed when it has
}

func (d *server) init(c *cluster) {
	d.cluster, d.gossip = c, "127.0.0.1:0"
	d.isReady, d.quit, d.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// run keeps the server running until quit.
func (d *server) run() {
	defer close(d.ended)
	backoff := backoffFirst
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
			d.cluster.fail(cli.Hint(err, "its output is above"))
			return
		}
		if d.served.Load() { // something ended it that has nothing to do with its start
			backoff = backoffFirst
		}
		d.cluster.shell.Note(fmt.Sprintf("%s has ended (%v): starting it again", d.name, err))
		select {
		case <-d.quit:
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, backoffLimit)
	}
}

// once runs the server's process until it ends or quit does it.
func (d *server) once(first bool) error {
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
	reading.Go(func() { d.readReady(stdout, first) })
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
		d.end(c.Process, ended, errors)
		return nil
	}
}

// commandLine returns the arguments for the next start.
func (d *server) commandLine() []string {
	out := append(slices.Clip(d.args), "--listen", d.listen, "--life-line")
	out = append(out, "--cluster", d.cluster.name)
	if d.role == RoleNATS {
		return out
	}
	if d.role == bourse.RoleProxy {
		out = append(out, "--http", d.http+"=any", "--https", d.https+"=any")
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

// readReady reads the server's standard output: its first line reports that it is
// ready.
func (d *server) readReady(stdout io.Reader, first bool) {
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	var r Ready
	if err == nil && json.Unmarshal(line, &r) == nil {
		if d.cluster.nats == nil || d.role != bourse.RoleWorker { // a worker on NATS listens nowhere
			d.listen, d.gossip = r.API, r.Gossip
		}
		if d.role == bourse.RoleProxy && len(r.HTTP) > 0 && len(r.HTTPS) > 0 {
			d.http, d.https = r.HTTP[0], r.HTTPS[0]
		}
		r.ID = d.name
		d.served.Store(true)
		d.cluster.noteReady(r, first)
		if first {
			close(d.isReady)
		}
	}
	_, _ = io.Copy(io.Discard, lines)
}

// end asks the process to end, and kills it when it does not.
func (d *server) end(p *os.Process, ended <-chan error, said *namedLines) {
	_ = p.Signal(syscall.SIGTERM) // it may have ended meanwhile
	select {
	case err := <-ended:
		if err != nil {
			d.cluster.shell.Note(fmt.Sprintf("%s ended badly (%v); the last that it said:", d.name, err))
			said.tell()
		}
		return
	case <-time.After(stopPatience):
	}
	d.cluster.shell.Note(d.name + " does not end: killing it")
	_ = p.Kill()
	<-ended
	said.tell()
}

// codeOfExit returns the code of a server's exit status.
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

// namedLines shows what a server writes to standard error, each line with its
// name. While the cluster is being stopped servers miss one another; of what
// they write then the last lines are kept, for one that ends badly.
type namedLines struct {
	name string
	to   io.Writer
	quit <-chan struct{}

	rest []byte // an unfinished line
	last []string
}

// lastLines is how many lines are kept of a server that is being stopped.
const lastLines = 5

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
	line = fmt.Sprintf("%s: %s\n", n.name, cli.Clean(line))
	if !isClosed(n.quit) {
		_, _ = io.WriteString(n.to, line)
		return
	}
	if n.last = append(n.last, line); len(n.last) > lastLines {
		n.last = n.last[1:]
	}
}

// tell shows the last lines, of a server that has ended.
func (n *namedLines) tell() {
	n.flush()
	_, _ = io.WriteString(n.to, strings.Join(n.last, ""))
}
