package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

var (
	binary  string
	started = time.Now()
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bourse-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "bourse")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/bourse").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// server is one process of the program.
type server struct {
	t      *testing.T
	name   string
	args   []string
	ready  string
	launch func(*exec.Cmd) error // starts it where it is to be; default: here
	dial   dialFunc              // reaches it from there; default: from here
	cmd    *exec.Cmd
	API    string `json:"api"`
	Addr   string `json:"gossip"`
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func startServer(t *testing.T, name string, args ...string) *server {
	t.Helper()
	s := newServer(t, name, args...)
	startAll(t, s)
	return s
}

// newServer makes a server that is not started.
func newServer(t *testing.T, name string, args ...string) *server {
	t.Helper()
	s := &server{t: t, name: name, ready: filepath.Join(t.TempDir(), name+".ready"), launch: (*exec.Cmd).Start}
	s.args = append(args, "--cluster", clusterOf(t), "--ready-file", s.ready, "--log-level", "warn")
	return s
}

// clusterOf names a cluster of the test's own: a port of a server that went
// may be another test's next.
func clusterOf(t *testing.T) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, t.Name(), os.Getpid(), started.UnixNano()) // a hash never fails
	return "test-" + strconv.FormatUint(h.Sum64(), 36)
}

// startAll starts servers side by side, and ends them so with the test.
func startAll(t *testing.T, servers ...*server) {
	t.Helper()
	t.Cleanup(func() {
		for _, s := range servers {
			if s.cmd != nil && s.cmd.Process != nil {
				_ = s.cmd.Process.Signal(syscall.SIGTERM) // may be over
			}
		}
		for _, s := range servers {
			if s.cmd != nil && s.cmd.Process != nil {
				_ = s.cmd.Wait()
			}
		}
	})
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.start() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// settle has the server come back at the addresses that it has now.
func (s *server) settle() { s.args = append(s.args, "--listen", s.API, "--gossip", s.Addr) }

// start starts the process, again after a kill, and waits until it is ready.
func (s *server) start() error {
	if err := os.Remove(s.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.cmd = exec.Command(binary, s.args...)
	s.cmd.Stderr = s.t.Output()
	if err := s.launch(s.cmd); err != nil {
		return err
	}
	if !within(20*time.Second, func() bool {
		text, err := os.ReadFile(s.ready)
		return err == nil && json.Unmarshal(text, s) == nil
	}) {
		return fmt.Errorf("%s is not ready", s.name)
	}
	return nil
}

// kill is what a crash does.
func (s *server) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait() // it says "killed"
	return nil
}

// within asks until the answer is yes, or the time is over. Processes of
// their own give no other sign.
func within(limit time.Duration, yes func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if yes() {
			return true
		}
	}
	return false
}

func client(t *testing.T, broker *server) *machinesapi.Client {
	return &machinesapi.Client{BaseURL: "http://" + broker.API, HTTP: broker.http(t)}
}

func (s *server) http(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DialContext: s.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// pidsOf gives the processes whose command line has the mark.
func pidsOf(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), mark) {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}
