package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// TestMain lets the test binary act as the bourse program in scripts, and as the
// supervisor that a worker starts.
func TestMain(m *testing.M) {
	if companionMain(os.Args) != nil {
		os.Exit(run())
	}
	// The race detector makes every process sleep for a second when it exits.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // only fails for a malformed name
	}
	// Most of the tests' time is spent waiting, so several of them run in parallel.
	_ = flag.Set("test.parallel", "4") // flags on the command line override this
	testscript.Main(privately{m}, map[string]func(){
		"bourse": func() { os.Exit(run()) }, "listen": listenOnPort, "hello": helloOnPort, "replays": replayOnPort,
	})
}

// listenOnPort is the main function of a program for machines with health checks.
func listenOnPort() {
	ln, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	for err == nil {
		var conn net.Conn
		if conn, err = ln.Accept(); err == nil {
			_ = conn.Close() // accepting the connection is enough for a health check
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// helloOnPort is the main function of a program whose machines answer requests from
// proxies.
func helloOnPort() {
	ln, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err == nil {
		err = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello from", r.URL.Path) })) //nolint:gosec // its clients are tests
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// privately runs the tests with a private directory for loopback credentials. The tests
// then cannot connect to other servers of the same user.
type privately struct{ *testing.M }

func (p privately) Run() int {
	dir, err := os.MkdirTemp("", "bourse-run-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv(loopback.Variable, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return p.M.Run()
}

// devState holds the contents of the ready file that "bourse dev" writes.
type devState struct {
	API     string        `json:"api"`
	Proxy   string        `json:"proxy"`
	PID     int           `json:"pid"`
	Data    string        `json:"data"`
	Servers []serve.Ready `json:"servers"`
}

func (d *devState) server(t testing.TB, id string) serve.Ready {
	t.Helper()
	for _, s := range d.Servers {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("the cluster has no server %s", id)
	return serve.Ready{}
}

// devCluster is a running "bourse dev".
type devCluster struct {
	devState
	cmd    *exec.Cmd
	ready  string
	output *gossiptest.Log
}

// startDev starts a dev cluster on free ports and stops it at the end of the test.
func startDev(t testing.TB, args ...string) *devCluster {
	t.Helper()
	d := &devCluster{ready: filepath.Join(t.TempDir(), "ready.json"), output: &gossiptest.Log{}}
	path, err := exec.LookPath("bourse")
	if err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(path, append([]string{"dev", "--api", "127.0.0.1:0", "--ready-file", d.ready}, args...)...)
	d.cmd.Args[0] = "bourse"
	d.cmd.Stdout, d.cmd.Stderr = d.output, d.output
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited already
		select {
		case <-ended:
		case <-time.After(awaitTimeout):
			_ = d.cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("bourse dev wrote:\n%s", d.output)
		}
	})
	await(t, "the cluster is ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("bourse dev exited (%v):\n%s", err, d.output)
		default:
		}
		return d.read() == nil
	})
	return d
}

func (d *devCluster) read() error {
	text, err := os.ReadFile(d.ready)
	if err != nil {
		return err
	}
	var s devState
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	d.devState = s
	return nil
}

// run runs a command against the cluster and returns its output.
func (d *devCluster) run(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "bourse", args...)
	c.Env = append(os.Environ(), "BOURSE_API="+d.API)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("bourse %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out)
}

// machine starts a machine that sleeps, and returns its id and pid.
func (d *devCluster) machine(t testing.TB, region string) (id string, pid int) {
	t.Helper()
	var m struct {
		ID  string `json:"id"`
		PID int    `json:"pid"`
	}
	if err := json.Unmarshal([]byte(d.run(t, "machine", "run", "host", "--region", region, "--json", "--", "sleep", "600")), &m); err != nil {
		t.Fatal(err)
	}
	if m.PID == 0 || !alive(m.PID) {
		t.Fatalf("machine %s has pid %d, want a running process", m.ID, m.PID)
	}
	return m.ID, m.PID
}

// awaitTimeout is the timeout of await. It is longer than the time that "bourse dev" waits for its servers, so that its
// more specific error is reported first.
const awaitTimeout = 4 * time.Minute

// await calls done until it returns true. It is meant for effects of other processes.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	end := time.Now().Add(awaitTimeout)
	for !done() {
		if time.Now().After(end) {
			t.Fatalf("timed out after %s waiting for this condition: %s", awaitTimeout, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// alive reports whether a process is running. It returns false for a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return string(fields[0]) != "Z"
}

// family returns all descendants of a process.
func family(t testing.TB, of int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("processes cannot be listed without /proc: %v", err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // the process has exited in the meantime
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for next := children[of]; len(next) > 0; next = next[1:] {
		out = append(out, next[0])
		next = append(next, children[next[0]]...)
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
