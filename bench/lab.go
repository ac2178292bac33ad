package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Lab is a temporary directory and the servers started in it.
type Lab struct {
	binary   string
	dir      string
	protocol bourse.TaskProtocol // of warm programs
	servers  []*Server
	more     []string // flags of workers that are started from now on
}

// Server is one process of the program.
type Server struct {
	Name  string
	Ready Ready
	Took  time.Duration // from its start until it was ready
	args  []string
	cmd   *exec.Cmd
	ready string
}

// Ready is what a server writes into its ready file.
type Ready struct {
	ID     string `json:"id"`
	API    string `json:"api"`
	Gossip string `json:"gossip"`
	PID    int    `json:"pid"`

	HTTP []string `json:"http"` // where a proxy serves it
}

func newLab(binary string) (*Lab, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bourse-bench-")
	if err != nil {
		return nil, err
	}
	return &Lab{binary: path, dir: dir}, os.Setenv(loopback.Variable, filepath.Join(dir, "run"))
}

func (l *Lab) close() {
	for _, s := range l.servers {
		s.end()
	}
	_ = os.RemoveAll(l.dir) // a temporary directory
}

// worker starts a worker in a region, with room for thousands of machines.
func (l *Lab) worker(ctx context.Context, name, region string, join ...string) (*Server, error) {
	args := []string{
		"serve", "worker", "--region", region, "--name", name, "--data", filepath.Join(l.dir, name),
		"--cpus", "4000", "--memory", "4TiB", "--disk", "1TiB", "--ephemeral", "--log-level", "warn",
	}
	if onlyV1() {
		args = append(args, "--no-limits")
	}
	args = append(args, l.more...)
	return l.start(ctx, name, append(args, "--join", strings.Join(join, ","))...)
}

// onlyV1 reports whether this host's limits are those of cgroup v1, which costs
// a start 10 to 20 ms that no user of v2 sees: machines have none then, as the
// floors have none.
func onlyV1() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(mounts), " - cgroup ")
}

// broker starts a broker on a free port.
func (l *Lab) broker(ctx context.Context, name string, join ...string) (*Server, error) {
	return l.start(ctx, name, "serve", "broker", "--listen", "127.0.0.1:0", "--log-level", "warn", "--join", strings.Join(join, ","))
}

func (l *Lab) start(ctx context.Context, name string, args ...string) (*Server, error) {
	s := &Server{Name: name, args: args, ready: filepath.Join(l.dir, name+".ready")}
	if args[len(args)-1] == "" { // no one to join
		s.args = args[:len(args)-2]
	}
	s.args = append(s.args, "--ready-file", s.ready)
	l.servers = append(l.servers, s)
	return s, s.begin(ctx, l.binary)
}

// begin starts the process and waits until it says that it is ready.
func (s *Server) begin(ctx context.Context, binary string) error {
	if err := os.Remove(s.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.cmd = exec.Command(binary, s.args...) //nolint:noctx // its life is the lab's
	s.cmd.Stderr = os.Stderr
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for time.Since(begin) < 20*time.Second && ctx.Err() == nil {
		text, err := os.ReadFile(s.ready)
		if err == nil && json.Unmarshal(text, &s.Ready) == nil {
			s.Took = time.Since(begin)
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s is not ready after %s", s.Name, time.Since(begin))
}

// kill ends the process at once, as a crash does.
func (s *Server) kill() {
	_ = s.cmd.Process.Kill() // ended already: fine
	_ = s.cmd.Wait()
}

func (s *Server) end() {
	if s.cmd.Process == nil || s.cmd.ProcessState != nil { // it could not be started, or has ended
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // ended already: fine
	_ = s.cmd.Wait()
}

// market starts workers and a broker that knows them all, and returns the
// broker's client.
func (l *Lab) market(ctx context.Context, regions ...string) (*machinesapi.Client, []*Server, error) {
	broker, err := l.broker(ctx, "broker")
	if err != nil {
		return nil, nil, err
	}
	client := clientOf(broker)
	var workers []*Server
	for i, region := range regions {
		w, err := l.worker(ctx, region+"-"+strconv.Itoa(i), region, broker.Ready.Gossip)
		if err != nil {
			return nil, nil, err
		}
		workers = append(workers, w)
	}
	return client, workers, takeOrders(ctx, client, len(workers))
}

// takeOrders waits until so many workers answer with a quote.
func takeOrders(ctx context.Context, client *machinesapi.Client, workers int) error {
	return until(ctx, 10*time.Second, "all workers take orders", func() bool {
		known := 0
		d, err := client.Quote(ctx, app, order("any", 1))
		for _, r := range d.Rounds {
			known += len(r.Ranked)
		}
		return err == nil && known == workers
	})
}

func clientOf(broker *Server) *machinesapi.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	api := "http://" + broker.Ready.API
	return &machinesapi.Client{BaseURL: api, Token: loopback.Find(os.Getenv, api), HTTP: &http.Client{Transport: transport}}
}

// until waits for something that only time brings.
func until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	begin := time.Now()
	for !done() {
		if time.Since(begin) > limit || ctx.Err() != nil {
			return fmt.Errorf("after %s not yet: %s", time.Since(begin).Round(time.Millisecond), what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}
