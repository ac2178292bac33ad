package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// state is what "bourse dev" writes to its ready file.
type state struct {
	API     string   `json:"api"`
	Proxy   string   `json:"proxy"`
	PID     int      `json:"pid"`
	Data    string   `json:"data"`
	Servers []server `json:"servers"`
}

type server struct {
	ID  string `json:"id"`
	API string `json:"api"`
	PID int    `json:"pid"`
}

func (s *state) server(id string) (server, bool) {
	for _, x := range s.Servers {
		if x.ID == id {
			return x, true
		}
	}
	return server{}, false
}

func (d *demo) readyFile() string { return filepath.Join(d.dir, "ready.json") }

func (d *demo) readState() error {
	text, err := os.ReadFile(d.readyFile())
	if err != nil {
		return err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	d.state = s
	return nil
}

// startCluster starts "bourse dev" on free ports and waits until it is ready.
func (d *demo) startCluster(ctx context.Context) error {
	show("bourse dev --api 127.0.0.1:0 --idle-after " + idleAfter + " &")
	d.cluster = exec.Command(d.binary, "dev", "--api", "127.0.0.1:0", "--idle-after", idleAfter, "--ready-file", d.readyFile()) //nolint:noctx // its end is a step of its own
	d.cluster.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                                 // a Ctrl-C of the demo is passed on in good order
	out, err := d.cluster.StdoutPipe()
	if err != nil {
		return err
	}
	d.cluster.Stderr = os.Stderr
	if err := d.cluster.Start(); err != nil {
		return err
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		indent(out)
	}()
	err = until(ctx, 20*time.Second, "the cluster is ready", func() bool { return d.readState() == nil })
	if err != nil {
		return err
	}
	if len(d.state.Servers) != 8 {
		return fmt.Errorf("the cluster has %d servers, want 6 workers, a broker and a proxy", len(d.state.Servers))
	}
	// What it says when ready ends with this line; then the demo may speak.
	select {
	case <-said:
	case <-time.After(200 * time.Millisecond):
	}
	return nil
}

// indent shows what a program prints.
func indent(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		printLine(lines.Text())
	}
}

// bourse runs the command line and shows both, as a person would see them.
func (d *demo) bourse(ctx context.Context, args ...string) (int, error) {
	show("bourse " + strings.Join(args, " "))
	c := exec.CommandContext(ctx, d.binary, args...)
	c.Dir = d.dir // where ./hello is
	c.Env = append(os.Environ(), "BOURSE_API="+d.state.API)
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		indent(r)
	}()
	err := c.Run()
	_ = w.Close() // a pipe in memory
	<-shown
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// waitCluster waits for "bourse dev" to end by itself.
func (d *demo) waitCluster(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- d.cluster.Wait() }()
	select {
	case err := <-ended:
		d.cluster = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends a cluster that a failure has left: it cleans up by itself.
func (d *demo) kill() {
	if d.cluster == nil || d.cluster.Process == nil {
		return
	}
	_ = d.cluster.Process.Signal(syscall.SIGTERM) // it may have ended
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if d.waitCluster(ctx) != nil && d.cluster != nil {
		_ = d.cluster.Process.Kill()
	}
}

// until asks every few milliseconds for what only time brings.
func until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s not yet: %s", limit, what)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
