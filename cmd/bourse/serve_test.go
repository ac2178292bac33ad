package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// served is a server that a test has started.
type served struct {
	serve.Ready
	cmd    *exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
}

// startServer starts a server and waits until it reports that it is ready.
func startServer(t *testing.T, args ...string) *served {
	t.Helper()
	s := launch(t, args...)
	line, err := bufio.NewReader(s.stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.Ready)
	}
	if err != nil {
		t.Fatalf("bourse serve %s: %v\n%s", strings.Join(args, " "), err, s.wait())
	}
	return s
}

// launch starts a server, and kills it at the end of the test. If the test has failed, it logs the server's log with the
// stacks of all goroutines.
func launch(t *testing.T, args ...string) *served {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve"}, args...)
	if !slices.Contains(args, "--cluster") && args[1] != "--config" { // servers of earlier tests may have used the same port
		args = append(args, "--cluster", servertest.Cluster(t))
	}
	s := &served{cmd: exec.Command("bourse", args...)}
	s.cmd.Stdout, s.cmd.Stderr = w, &s.stderr
	s.stdout = r
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the server has its own copy
	t.Cleanup(func() {
		signal := syscall.SIGKILL
		if t.Failed() {
			signal = syscall.SIGQUIT
		}
		_ = s.cmd.Process.Signal(signal)          // it may have exited already
		_ = s.cmd.Process.Signal(syscall.SIGCONT) // the test may have stopped it
		_ = s.cmd.Wait()                          // the test may have waited for it already
		_ = r.Close()
		if t.Failed() {
			t.Logf("the log of bourse %s:\n%s", strings.Join(args, " "), s.stderr.String())
		}
	})
	return s
}

// wait waits until the server has exited, and returns its standard error.
func (s *served) wait() string {
	_ = s.cmd.Wait() // ProcessState contains the exit status
	return s.stderr.String()
}

func (s *served) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	send(t, s.cmd.Process.Pid, signal)
	if said := s.wait(); signal != syscall.SIGKILL && s.cmd.ProcessState.ExitCode() != 0 {
		t.Fatalf("%s exited with %v:\n%s", s.ID, s.cmd.ProcessState, said)
	}
}

// refused checks that the server exits with this status, and that its output contains
// text.
func (s *served) refused(t *testing.T, status int, text string) {
	t.Helper()
	said := s.wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status || !strings.Contains(said, text) {
		t.Errorf("exit status %d, want %d and %q:\n%s", got, status, text, said)
	}
}

func workerArgs(name, dir string, more ...string) []string {
	return append([]string{
		"worker", "--name", name, "--region", "gru", "--data", dir, "--cpus", "2", "--memory", "1GiB", "--disk", "1GiB", "--log-level", "warn",
	}, more...)
}

// dataDir returns a worker's data directory. A supervisor without machines exits
// shortly after its daemon, so the directory must not be removed before that.
func dataDir(t *testing.T) string {
	dir := t.TempDir()
	t.Cleanup(func() {
		await(t, "the supervisor of "+dir+" has exited", func() bool {
			lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
			return err == nil && !slices.ContainsFunc(lines, func(path string) bool {
				line, err := os.ReadFile(path)
				return err == nil && strings.Contains(string(line), dir)
			})
		})
	})
	return dir
}

// TestMachinesOutliveTheDaemon checks that machines keep running when the daemon stops,
// and that the next daemon finds them.
func TestMachinesOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	dir, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready.json")
	broker := startServer(t, "broker", "--listen", "127.0.0.1:0", "--log-level", "warn")
	args := workerArgs("gru-1", dir, "--join", broker.Gossip, "--ready-file", ready)
	w := startServer(t, args...)
	d := &devCluster{devState: devState{API: "http://" + broker.API}}
	await(t, "the broker knows the worker", func() bool { // before that, the broker replies with an error
		out, err := exec.CommandContext(t.Context(), "bourse", "--api", d.API, "worker", "list").Output()
		return err == nil && strings.Contains(string(out), " ok ")
	})
	id, pid := d.machine(t, "gru")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // in case the test fails

	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		w.end(t, signal)
		if _, err := os.Stat(ready); signal != syscall.SIGKILL && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %s: ready file: got error %v, want not exist", signal, err)
		}
		if !alive(pid) {
			t.Fatalf("the machine no longer runs after %s", signal)
		}
		w = startServer(t, args...)
		await(t, "its worker reports the machine again", func() bool { // until then, it is listed as unreachable
			out, err := exec.CommandContext(t.Context(), "bourse", "--api", d.API, "machine", "status", id).Output()
			text := string(out)
			return err == nil && strings.Contains(text, "started") && strings.Contains(text, "pid      "+itoa(pid)) && !strings.Contains(text, "unreachable")
		})
	}
	d.run(t, "machine", "destroy", "--yes", "--force", id)
	if alive(pid) {
		t.Error("the destroyed machine is still running")
	}
	w.end(t, syscall.SIGTERM)
}

func TestTwoDaemonsOnOneDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, workerArgs("gru-1", dir)...)
	launch(t, workerArgs("gru-1", dir)...).refused(t, 5, "error: ")
	first.end(t, syscall.SIGTERM)
	launch(t, workerArgs("gru-2", dir)...).refused(t, 5, "gru-1")
}

func TestWorkerIDUsedTwice(t *testing.T) {
	t.Parallel()
	first := startServer(t, workerArgs("gru-1", dataDir(t))...)
	launch(t, workerArgs("gru-1", dataDir(t), "--join", first.Gossip)...).refused(t, 5, "already in use")
	first.end(t, syscall.SIGTERM)
}

// TestLogNamesTheServerOnce checks that each log line names the server exactly once.
func TestLogNamesTheServerOnce(t *testing.T) {
	t.Parallel()
	w := startServer(t, workerArgs("gru-1", dataDir(t), "--log-level", "debug")...)
	w.end(t, syscall.SIGTERM)
	said := w.stderr.String()
	if !strings.Contains(said, "worker recovered") {
		t.Errorf("the worker logged no line:\n%s", said)
	}
	for line := range strings.Lines(said) {
		if n := strings.Count(line, " worker=gru-1"); n != 1 {
			t.Errorf("the line names the server %d times, want once: %s", n, line)
		}
	}
}

func TestServeAddressTaken(t *testing.T) {
	t.Parallel()
	first := startServer(t, "broker", "--listen", "127.0.0.1:0")
	launch(t, "broker", "--listen", first.API).refused(t, 5, first.API)
	launch(t, "broker", "--listen", "127.0.0.1:0", "--gossip", first.Gossip).refused(t, 5, first.Gossip)
}

// TestLifeLine checks that a server stops when its parent process has exited.
func TestLifeLine(t *testing.T) {
	t.Parallel()
	s := launch(t, "broker", "--listen", "127.0.0.1:0", "--life-line") // its standard input is closed
	s.refused(t, 0, "")
}

// TestServerSurvivesHangup checks that a server survives SIGHUP, which comes from a closed
// terminal or from an operator who expects files to be reread.
func TestServerSurvivesHangup(t *testing.T) {
	t.Parallel()
	s := startServer(t, "broker", "--listen", "127.0.0.1:0")
	send(t, s.cmd.Process.Pid, syscall.SIGHUP)
	s.end(t, syscall.SIGTERM) // status 0 shows that SIGHUP did not end the server
}

// TestReload checks that SIGHUP restarts the server whose settings have changed, and that
// its machines and the host's other server keep running.
func TestReload(t *testing.T) {
	t.Parallel()
	cluster, data, path := servertest.Cluster(t), dataDir(t), filepath.Join(t.TempDir(), "bourse.toml")
	broker := startServer(t, "broker", "--listen", "127.0.0.1:0", "--cluster", cluster)
	configure := func(idle string) {
		text := fmt.Sprintf(`cluster = %q
join = [%q]
name = "gru-1"
region = "gru"
data = %q
log-level = "warn"
[worker]
cpus = 2
memory = "1GiB"
disk = "1GiB"
idle-after = %q
[proxy]
http = ["127.0.0.1:0"]
`, cluster, broker.Gossip, data, idle)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("1m")
	host := launch(t, "--config", path)
	lines := bufio.NewReader(host.stdout)
	next := func() (r serve.Ready) {
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, host.wait())
		}
		return r
	}
	before := map[bourse.Role]serve.Ready{}
	for range 2 {
		r := next()
		before[r.Role] = r
	}
	d := &devCluster{devState: devState{API: "http://" + broker.API}}
	await(t, "the broker knows the worker", func() bool {
		out, err := exec.CommandContext(t.Context(), "bourse", "--api", d.API, "worker", "list").Output()
		return err == nil && strings.Contains(string(out), " ok ")
	})
	id, pid := d.machine(t, "gru")
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // in case the test fails

	configure("2m")
	send(t, host.cmd.Process.Pid, syscall.SIGHUP)
	after := next()
	if after.Role != bourse.RoleWorker || after.PID == before[bourse.RoleWorker].PID {
		t.Errorf("%s %s has restarted, want only the worker to restart", after.Role, after.ID)
	}
	if !alive(pid) || !alive(before[bourse.RoleProxy].PID) || alive(before[bourse.RoleWorker].PID) {
		t.Errorf("alive: machine %v, proxy %v, old worker %v", alive(pid), alive(before[bourse.RoleProxy].PID), alive(before[bourse.RoleWorker].PID))
	}
	await(t, "its worker reports the machine again", func() bool {
		out, err := exec.CommandContext(t.Context(), "bourse", "--api", d.API, "machine", "status", id).Output()
		return err == nil && strings.Contains(string(out), "pid      "+itoa(pid)) && !strings.Contains(string(out), "unreachable")
	})
	d.run(t, "machine", "destroy", "--yes", "--force", id)
	host.end(t, syscall.SIGTERM)
}

// TestSystemdIsNotified checks that systemd is notified once the server is ready, as a
// unit of Type=notify requires.
func TestSystemdIsNotified(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	s := startServer(t, "broker", "--listen", "127.0.0.1:0")
	if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := l.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("systemd received %q (%v), want READY=1", buf[:n], err)
	}
	s.end(t, syscall.SIGTERM)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	launch(t, "broker", "--listen", "127.0.0.1:0").refused(t, 2, "NOTIFY_SOCKET")
}

// TestSecureCluster checks that a cluster with TLS, a gossip key and tokens gives no
// access to clients without them.
func TestSecureCluster(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	const token, operator = "a-token-that-is-not-guessed", "a-token-of-those-who-run-it"
	ca.file("tokens", token+" personal\n"+operator+" *\n")

	b := startServer(t, append([]string{"broker", "--name", "b-1", "--listen", "127.0.0.1:0"}, ca.flags("b-1", bourse.RoleBroker)...)...)
	w := startServer(t, workerArgs("gru-1", t.TempDir(), append([]string{"--join", b.Gossip, "--ephemeral"}, ca.flags("gru-1", bourse.RoleWorker)...)...)...)
	run := func(args ...string) (string, int) {
		c := exec.CommandContext(t.Context(), "bourse", append([]string{"--api", "https://" + b.API}, args...)...)
		c.Env = append(os.Environ(), "SSL_CERT_FILE="+ca.path("ca.pem"))
		out, _ := c.CombinedOutput() // the exit status is checked instead
		return string(out), c.ProcessState.ExitCode()
	}
	await(t, "a machine runs", func() bool {
		out, code := run("--token", token, "machine", "run", "host", "--name", "safe", "--", "sleep", "600")
		return code == 0 && strings.Contains(out, "started in region gru") || strings.Contains(out, "safe")
	})
	if out, code := run("machine", "list"); code != 4 {
		t.Errorf("without a token: exit status %d, want 4\n%s", code, out)
	}
	if out, code := run("--token", "a-token-that-was-made-up-here", "machine", "list"); code != 4 {
		t.Errorf("with an unknown token: exit status %d, want 4\n%s", code, out)
	}
	if out, code := run("--token", token, "worker", "list"); code != 4 {
		t.Errorf("an organization's token lists the workers: exit status %d, want 4\n%s", code, out)
	}
	if out, code := run("--token", operator, "worker", "list"); code != 0 || !strings.Contains(out, "gru-1") {
		t.Errorf("an unrestricted token: exit status %d, want the workers\n%s", code, out)
	}
	// A server cannot use another server's certificate.
	wrong := workerArgs("gru-2", t.TempDir(), append([]string{"--join", b.Gossip}, ca.flags("gru-2", bourse.RoleWorker)...)...)
	ca.file("gru-2.pem", string(ca.issue("gru-3", bourse.RoleWorker).PEM()))
	launch(t, wrong...).refused(t, 2, "gru-3")
	w.end(t, syscall.SIGTERM)
	b.end(t, syscall.SIGTERM)
}
