package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

var binary string

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
	t     *testing.T
	name  string
	args  []string
	ready string
	cmd   *exec.Cmd
	API   string `json:"api"`
	Addr  string `json:"gossip"`
}

func startServer(t *testing.T, name string, args ...string) *server {
	t.Helper()
	s := &server{t: t, name: name, ready: filepath.Join(t.TempDir(), name+".ready")}
	s.args = append(args, "--ready-file", s.ready, "--log-level", "warn")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // may be over
		_ = s.cmd.Wait()
	})
	return s
}

// start starts the process, again after a kill, and waits until it is ready.
func (s *server) start() error {
	if err := os.Remove(s.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.cmd = exec.Command(binary, s.args...)
	s.cmd.Stderr = s.t.Output()
	if err := s.cmd.Start(); err != nil {
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
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	return &machinesapi.Client{BaseURL: "http://" + broker.API, HTTP: &http.Client{Transport: transport}}
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
