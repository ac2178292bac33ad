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
	cliserve "github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// app is the name of the app that contains all of the benchmark's machines.
const app = bourse.AppName("default")

// sleeper is the program that machines run. The baselines start the same program.
var sleeper = []string{"/bin/sleep", "1000"}

// order returns an order for a machine that runs the sleeper.
func order(region string, memory bourse.MiB) machinesapi.CreateMachine {
	return machinesapi.CreateMachine{Region: region, Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: memory}, Init: bourse.Init{Exec: sleeper},
	}}
}

// Lab holds a temporary directory and the servers that were started in it.
type Lab struct {
	binary  string
	dir     string
	servers []*Server
}

// Server is one bourse process.
type Server struct {
	Name  string
	Ready Ready
	Took  time.Duration // time from the start until the server was ready
	args  []string
	cmd   *exec.Cmd
	ready string
}

// Ready holds the contents of a server's ready file.
type Ready struct {
	ID     string   `json:"id"`
	API    string   `json:"api"`
	Gossip string   `json:"gossip"`
	PID    int      `json:"pid"`
	HTTP   []string `json:"http"` // addresses of a proxy's listeners
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
		s.stop()
	}
	_ = os.RemoveAll(l.dir) // it is only a temporary directory
}

// worker starts a worker with capacity for thousands of machines. more holds additional
// command-line arguments.
func (l *Lab) worker(ctx context.Context, name, region string, more ...string) (*Server, error) {
	args := []string{
		"serve", "worker", "--region", region, "--name", name, "--data", filepath.Join(l.dir, name),
		"--cpus", "4000", "--memory", "4TiB", "--disk", "1TiB", "--ephemeral", "--log-level", "error",
	}
	if onlyV1() {
		args = append(args, "--no-limits")
	}
	return l.start(ctx, name, append(args, more...)...)
}

// onlyV1 reports whether this host supports only cgroup v1. In that case, machines and baselines
// run without limits, because setting limits in cgroup v1 adds 10 to 20 ms to each start.
func onlyV1() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(mounts), " - cgroup ")
}

// broker starts a broker on a free port.
func (l *Lab) broker(ctx context.Context, name string, more ...string) (*Server, error) {
	return l.start(ctx, name, append([]string{"serve", "broker", "--listen", "127.0.0.1:0", "--log-level", "error"}, more...)...)
}

func (l *Lab) start(ctx context.Context, name string, args ...string) (*Server, error) {
	s := &Server{Name: name, ready: filepath.Join(l.dir, name+".ready")}
	s.args = append(args, "--ready-file", s.ready)
	l.servers = append(l.servers, s)
	return s, s.begin(ctx, l.binary)
}

// begin starts the process and waits until it is ready.
func (s *Server) begin(ctx context.Context, binary string) error {
	if err := os.Remove(s.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.cmd = exec.Command(binary, s.args...) //nolint:noctx // Lab stops it
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

// kill kills the process with SIGKILL and waits until it has exited.
func (s *Server) kill() {
	_ = s.cmd.Process.Kill() // the process may have exited
	_ = s.cmd.Wait()
}

func (s *Server) stop() {
	if s.cmd.Process == nil || s.cmd.ProcessState != nil { // never started, or already stopped
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
	_ = s.cmd.Wait()
}

// market starts one broker, and one worker for each element of regions. It waits until all workers
// answer with quotes, and returns a client for the broker, and the workers.
func (l *Lab) market(ctx context.Context, regions []string, more ...string) (*machinesapi.Client, []*Server, error) {
	broker, err := l.broker(ctx, "broker")
	if err != nil {
		return nil, nil, err
	}
	client := clientOf(broker)
	var workers []*Server
	for i, region := range regions {
		w, err := l.worker(ctx, region+"-"+strconv.Itoa(i), region, append([]string{"--join", broker.Ready.Gossip}, more...)...)
		if err != nil {
			return nil, nil, err
		}
		workers = append(workers, w)
	}
	return client, workers, awaitQuotes(ctx, client, len(workers))
}

// awaitQuotes waits until the given number of workers answer with a quote.
func awaitQuotes(ctx context.Context, client *machinesapi.Client, workers int) error {
	return until(ctx, 10*time.Second, "all workers answer with quotes", func() bool {
		known := 0
		d, err := client.Quote(ctx, app, order("any", 1))
		for _, r := range d.Rounds {
			known += len(r.Ranked)
		}
		return err == nil && known == workers
	})
}

func clientOf(broker *Server) *machinesapi.Client {
	api := "http://" + broker.Ready.API
	token, _ := loopback.Find(os.Getenv, api)
	return &machinesapi.Client{
		BaseURL: api, Token: token,
		HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

// startedOn returns the latest boot of each started machine on a worker.
func startedOn(ctx context.Context, w *Server) (map[bourse.MachineID]bourse.Boot, error) {
	proof, err := proofOf(cliserve.DefaultCluster)
	if err != nil {
		return nil, err
	}
	caller := direct.NewOver(direct.TCP, nil, proof)
	defer caller.Close()
	id := bourse.WorkerID(w.Ready.ID)
	worker := bourse.Member{ID: id, Role: bourse.RoleWorker, Address: w.Ready.API, Tag: id.Tags()[0]} // a worker chooses its first tag unless another worker has it
	machines, err := fabric.MachineList.Call(ctx, caller, worker, fabric.MachinesQuery{})
	if err != nil {
		return nil, fmt.Errorf("machines of %s: %w", w.Name, err)
	}
	started := map[bourse.MachineID]bourse.Boot{}
	for _, m := range machines {
		if m.State == bourse.StateStarted {
			started[m.ID] = m.Boot
		}
	}
	return started, nil
}

// proofOf returns the [admission.Proof] that makes a cluster's servers on loopback accept this
// process's calls.
func proofOf(cluster string) (admission.Proof, error) {
	secret, err := loopback.SecretOf(os.Getenv, cluster)
	return admission.Proof{Cluster: cluster, Bearer: string(secret)}, err
}

// supervisor returns the PID of a worker's supervisor process.
func (s *Server) supervisor() (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, bad := strconv.Atoi(e.Name())
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		words := strings.Split(string(cmdline), "\x00")
		if err == nil && bad == nil && len(words) > 2 && words[1] == "supervisor" && strings.Contains(string(cmdline), "/"+s.Name+"/") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("worker %s has no supervisor process", s.Name)
}

// anonymous returns how many bytes of anonymous memory a worker's daemon and supervisor use. Pages
// of the program's file do not count, because they are shared.
func (s *Server) anonymous() (total int64, err error) {
	supervisor, err := s.supervisor()
	if err != nil {
		return 0, err
	}
	for _, pid := range []int{s.Ready.PID, supervisor} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), "\nAnonymous:")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0, fmt.Errorf("the kernel reports no anonymous memory for process %d", pid)
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0, err
		}
		total += kib << 10
	}
	return total, nil
}
