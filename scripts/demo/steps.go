package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// demo is what the steps hand on to one another.
type demo struct {
	binary, dir string

	cluster *exec.Cmd // bourse dev
	state   state
	machine machinesapi.Machine
	seen    []int // processes of the cluster, as they were before its end
}

func (d *demo) hello() string { return filepath.Join(d.dir, "hello") }

func (d *demo) client() *machinesapi.Client {
	return &machinesapi.Client{BaseURL: d.state.API, Token: loopback.Find(os.Getenv, d.state.API), HTTP: &http.Client{Timeout: 10 * time.Second}}
}

func (d *demo) buildHello(ctx context.Context) error {
	show("go build -o hello ./examples/hello")
	c := exec.CommandContext(ctx, "go", "build", "-o", d.hello(), "./examples/hello")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// runHello places the order, as a person would, and reads the machine back
// through the API.
func (d *demo) runHello(ctx context.Context) error {
	if code, err := d.bourse(ctx, "machine", "run", "host", "--region", "gru", "--name", "hello", "--", "./hello"); err != nil || code != 0 {
		return fmt.Errorf("exit status %d: %w", code, err)
	}
	list, _, err := d.client().Machines(ctx, "default", machinesapi.ListMachines{})
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return fmt.Errorf("%d machines are listed, want 1", len(list))
	}
	if d.machine, err = d.client().Machine(ctx, "default", list[0].ID); err != nil {
		return err
	}
	m := d.machine
	if m.State != bourse.StateStarted || m.Region != "gru" || m.PID == 0 || m.Port == 0 {
		return fmt.Errorf("machine %s is %s in %s with pid %d and port %d; want started in gru with both", m.ID, m.State, m.Region, m.PID, m.Port)
	}
	return nil
}

// ask calls the server in the machine.
func (d *demo) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", d.machine.Port), nil)
	if err != nil {
		return "", err
	}
	req.Close = true // each a connection of its own, as new clients make
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(text)), err
}

func (d *demo) callHello(ctx context.Context) error {
	show(fmt.Sprintf("curl http://127.0.0.1:%d/", d.machine.Port))
	var text string
	// It is started when its program is; the program then has to listen.
	err := until(ctx, 5*time.Second, "the server answers", func() bool {
		var err error
		text, err = d.ask(ctx)
		return err == nil
	})
	if err != nil {
		return err
	}
	tell(text)
	if !strings.Contains(text, string(d.machine.ID)) || !strings.Contains(text, "region gru") {
		return fmt.Errorf("the reply does not name machine %s in gru", d.machine.ID)
	}
	return nil
}

func (d *demo) showOrder(ctx context.Context) error {
	code, err := d.bourse(ctx, "order", "show", string(d.machine.OrderID))
	if err != nil || code != 0 {
		return fmt.Errorf("exit status %d: %w", code, err)
	}
	decision, err := d.client().Order(ctx, d.machine.OrderID)
	if err != nil {
		return err
	}
	if decision.Outcome != bourse.OutcomeFilled || decision.Machine != d.machine.ID {
		return fmt.Errorf("the decision says %s with machine %s", decision.Outcome, decision.Machine)
	}
	return nil
}

// tooMuch is more memory than any worker of a dev cluster sells.
const tooMuch = "64GiB"

func (d *demo) refuse(ctx context.Context) error {
	code, err := d.bourse(ctx, "machine", "run", "host", "--region", "gru", "--vm-memory", tooMuch, "--", "./hello")
	if err != nil || code != 6 {
		return fmt.Errorf("exit status %d, want 6: %w", code, err)
	}
	tell(fmt.Sprintf("exit status %d", code))
	req := machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Init: bourse.Init{Cmd: []string{d.hello()}}, Guest: &bourse.Guest{MemoryMB: 64 << 10},
	}}
	_, err = d.client().Create(ctx, "default", req, "")
	reply, ok := errors.AsType[*machinesapi.ReplyError](err)
	if bourse.CodeOf(err) != bourse.CodeInsufficient || !ok || len(reply.Refusals) != 2 {
		return fmt.Errorf("the API said %w; want insufficient_capacity with the refusals of both workers in gru", err)
	}
	for _, r := range reply.Refusals {
		if r.Resource != string(bourse.ResourceMemory) || r.Wanted != 64<<10 || r.Free <= 0 {
			return fmt.Errorf("%s refused with %+v; want memory, how much was wanted and how much was free", r.Worker, r)
		}
	}
	return nil
}

// killWorker kills the daemon and calls the machine until the daemon is back.
// A call counts as made during the outage when the daemon did not answer
// before it and did not after it either.
func (d *demo) killWorker(ctx context.Context) error {
	worker, ok := d.state.server(string(d.machine.Worker))
	if !ok {
		return fmt.Errorf("the cluster has no server %s", d.machine.Worker)
	}
	show(fmt.Sprintf("kill -9 %d     # the daemon of worker %s", worker.PID, worker.ID))
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		return err
	}
	began := time.Now()
	if err := until(ctx, 5*time.Second, "the daemon is dead", func() bool { return !answers(ctx, worker.API) }); err != nil {
		return err
	}
	during, all, last := 0, 0, ""
	var problem error
	err := until(ctx, 10*time.Second, "the daemon is back", func() bool {
		down := !answers(ctx, worker.API)
		text, err := d.ask(ctx)
		if err != nil {
			problem = fmt.Errorf("the machine did not answer while its daemon was away: %w", err)
			return true
		}
		all++
		if down && !answers(ctx, worker.API) {
			during++
			last = text
		}
		return !down
	})
	switch {
	case problem != nil:
		return problem
	case err != nil:
		return err
	case during == 0:
		return errors.New("the daemon was back before the machine could be called")
	}
	tell(last)
	tell(fmt.Sprintf("%d of %d calls were answered while the daemon was away (%d ms)", all, all, time.Since(began).Milliseconds()))
	return d.restarted(ctx, worker)
}

// restarted waits for the cluster to tell of the worker's new process.
func (d *demo) restarted(ctx context.Context, before server) error {
	return until(ctx, 10*time.Second, "the cluster tells of the new daemon", func() bool {
		if d.readState() != nil {
			return false
		}
		now, ok := d.state.server(before.ID)
		return ok && now.PID != before.PID
	})
}

func (d *demo) adopted(ctx context.Context) error {
	var m machinesapi.Machine
	err := until(ctx, 10*time.Second, "the daemon tells of the machine", func() bool {
		var err error
		m, err = d.client().Machine(ctx, "default", d.machine.ID)
		return err == nil
	})
	if err != nil {
		return err
	}
	if code, err := d.bourse(ctx, "machine", "status", "hello"); err != nil || code != 0 {
		return fmt.Errorf("exit status %d: %w", code, err)
	}
	if m.State != bourse.StateStarted || m.PID != d.machine.PID || m.Port != d.machine.Port || m.InstanceID != d.machine.InstanceID {
		return fmt.Errorf("machine %s is %s with pid %d and port %d; want started with pid %d and port %d as before",
			m.ID, m.State, m.PID, m.Port, d.machine.PID, d.machine.Port)
	}
	text, err := d.ask(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(text, fmt.Sprintf("pid %d,", d.machine.PID)) {
		return fmt.Errorf("the server says %q, want pid %d as before", text, d.machine.PID)
	}
	tell(fmt.Sprintf("same process (pid %d), same port (%d), nothing restarted", m.PID, m.Port))
	return nil
}

// end ends the cluster as Ctrl-C would and looks for anything left.
func (d *demo) end(ctx context.Context) error {
	d.seen = append(descendants(d.cluster.Process.Pid), d.machine.PID)
	show("Ctrl-C")
	if err := d.cluster.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := d.waitCluster(ctx); err != nil {
		return fmt.Errorf("bourse dev: %w", err)
	}
	for _, pid := range d.seen {
		if alive(pid) {
			return fmt.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(d.state.Data); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("directory %s is left (%w)", d.state.Data, err)
	}
	tell(fmt.Sprintf("%d processes and the cluster's directory are gone", len(d.seen)+1))
	return nil
}

// answers reports whether somebody listens at an address.
func answers(ctx context.Context, address string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close() // it was only asked for
	return true
}

var printing sync.Mutex // the cluster's output comes from another goroutine

// show prints what a person would type.
func show(command string) { printLine("$ " + command) }

// tell prints what came of it.
func tell(text string) { printLine(text) }

func printLine(text string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println("  " + text)
}
