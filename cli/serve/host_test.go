package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
)

// runsServer is an environment variable that makes this test binary run the servers of a host. The servers do nothing
// except report their settings when they are ready.
const runsServer = "BOURSE_TEST_SERVER"

// serverMain is the main function of the test binary if runsServer is set.
func serverMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, cli.Process(cli.Version{}), os.Args[1:], func(s *cli.Shell) []cli.Group {
		idle := func(ctx context.Context, role bourse.Role, c *ServerConfig) error {
			if c.Region == "refused" { // stands for a setting that is valid on another host
				return bourse.Errorf(bourse.CodeInvalid, "this host has no such address")
			}
			if _, err := c.Announce(s.Out, Ready{Role: role, Region: c.Region, PID: os.Getpid()}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
		roles := Roles{
			Worker: func(ctx context.Context, c WorkerConfig) error { return idle(ctx, bourse.RoleWorker, &c.ServerConfig) },
			Broker: func(ctx context.Context, c BrokerConfig) error { return idle(ctx, bourse.RoleBroker, &c.ServerConfig) },
			Proxy:  func(ctx context.Context, c ProxyConfig) error { return idle(ctx, bourse.RoleProxy, &c.ServerConfig) },
		}
		return []cli.Group{{Title: "Servers:", Commands: []*cobra.Command{New(s, roles)}}}
	})
}

// testHost is a host whose servers are processes of this test's program.
type testHost struct {
	t       *testing.T
	path    string
	hangups chan os.Signal // without a buffer, so that sending to it waits for the end of the previous reload
	ready   chan Ready
	started chan struct{} // closed when all servers have been ready
	ended   chan error
	stop    context.CancelFunc
	mu      sync.Mutex // guards notes
	notes   bytes.Buffer
	printed chan struct{} // receives a value when the host prints something
}

func (h *testHost) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.printed <- struct{}{}:
	default:
	}
	return h.notes.Write(p)
}

func (h *testHost) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes.String()
}

// startHost runs the servers of twoServers. They are stopped at the end of the test.
func startHost(t *testing.T) *testHost {
	t.Helper()
	t.Setenv(runsServer, "1")
	h := &testHost{
		t: t, path: file(t, twoServers), hangups: make(chan os.Signal), printed: make(chan struct{}, 1), ready: make(chan Ready, 100), started: make(chan struct{}), ended: make(chan error, 1),
	}
	ctx, stop := context.WithCancel(t.Context())
	h.stop = stop
	shell := &cli.Shell{Env: cli.Env{Err: cli.Stream{ReadWriter: struct {
		io.Reader
		io.Writer
	}{nil, h}}, Now: time.Now, Getenv: os.Getenv}}
	go func() {
		h.ended <- runHost(ctx, shell, h.path, h.hangups,
			func(r Ready) error { h.ready <- r; return nil }, func() error { close(h.started); return nil })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-h.ended; err != nil {
			t.Errorf("the host exited with %v", err)
		}
		close(h.ready)
		for r := range h.ready {
			t.Errorf("unexpected start of %+v", r)
		}
		if t.Failed() {
			t.Logf("the host printed:\n%s", h.noted())
		}
	})
	return h
}

// next waits until servers with these roles are ready, in any order, and returns their
// reports.
func (h *testHost) next(roles ...bourse.Role) map[bourse.Role]Ready {
	h.t.Helper()
	got := map[bourse.Role]Ready{}
	for range roles {
		select {
		case r := <-h.ready:
			got[r.Role] = r
		case err := <-h.ended:
			h.ended <- nil
			h.t.Fatalf("the host exited: %v\n%s", err, h.noted())
		}
	}
	for _, role := range roles {
		if _, ok := got[role]; !ok {
			h.t.Fatalf("ready: %+v, want %v", got, roles)
		}
	}
	return got
}

// reload replaces the configuration, and sends the signal.
func (h *testHost) reload(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.signal()
}

// signal sends SIGHUP, and waits until the host has reloaded its configuration.
func (h *testHost) signal() {
	h.hangups <- syscall.SIGHUP
	h.hangups <- syscall.SIGHUP // received once the first reload has ended
}

func (h *testHost) runs(r Ready) {
	h.t.Helper()
	if err := syscall.Kill(r.PID, 0); err != nil {
		h.t.Errorf("%s: %v, want a running process", r.Role, err)
	}
}

const (
	hostCommon = "region = 'gru'\ndata = '/nonexistent'\nname = 'h1'\ninsecure = true\naddress = '192.0.2.1'\n"
	twoServers = hostCommon + "[worker]\n[proxy]\n"
)

func TestReloadRestartsChangedServers(t *testing.T) {
	h := startHost(t)
	first := h.next(bourse.RoleWorker, bourse.RoleProxy)
	<-h.started

	h.reload(hostCommon + "[worker]\n[proxy]\nregion = 'mad'\n")
	if proxy := h.next(bourse.RoleProxy)[bourse.RoleProxy]; proxy.Region != "mad" || proxy.PID == first[bourse.RoleProxy].PID {
		t.Errorf("proxy %+v, want another process in region mad", proxy)
	}
	h.runs(first[bourse.RoleWorker])

	// A comment, or a setting with its default value, does not count as a change. A new server does not restart the
	// others, although it is in their lists of members to join.
	h.reload(hostCommon + "# worker\n[worker]\nidle-after = '60s'\n[proxy]\nregion = 'mad'\n[broker]\n")
	broker := h.next(bourse.RoleBroker)[bourse.RoleBroker]
	h.runs(first[bourse.RoleWorker])

	h.reload(hostCommon + "[worker]\nlog-level = 'debug'\n[broker]\n")
	worker := h.next(bourse.RoleWorker)[bourse.RoleWorker]
	if worker.PID == first[bourse.RoleWorker].PID {
		t.Error("the worker was not restarted")
	}
	h.runs(broker)
	if err := syscall.Kill(first[bourse.RoleWorker].PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("previous worker: %v, want an exited process", err)
	}
}

// An unusable file changes nothing, even if a server exits afterwards.
func TestReloadOfInvalidFile(t *testing.T) {
	h := startHost(t)
	servers := h.next(bourse.RoleWorker, bourse.RoleProxy)
	<-h.started
	for name, c := range map[string]struct {
		change func() error
		want   string
	}{
		"half a file":        {func() error { return os.WriteFile(h.path, []byte(hostCommon+"[worker]\nmemory = '8G"), 0o600) }, ":7:"},
		"an unknown setting": {func() error { return os.WriteFile(h.path, []byte(hostCommon+"[worker]\n memry = 1\n"), 0o600) }, ":7:2: memry"},
		"an invalid value":   {func() error { return os.WriteFile(h.path, []byte(hostCommon+"[worker]\nidle-after = '1ns'\n"), 0o600) }, ":7:1: --idle-after"},
		"an empty file":      {func() error { return os.Truncate(h.path, 0) }, "has no servers"},
		"other users' file":  {func() error { return os.Chmod(h.path, 0o622) }, "can be written by other users"},
		"a FIFO":             {func() error { return errors.Join(os.Remove(h.path), syscall.Mkfifo(h.path, 0o600)) }, "not a regular file"},
		"no file":            {func() error { return os.Remove(h.path) }, "there is no configuration"},
	} {
		_ = os.Remove(h.path) // the previous case may have removed it
		if err := errors.Join(os.WriteFile(h.path, []byte(hostCommon+"[worker]\nregion = 'mad'\n"), 0o600), c.change()); err != nil {
			t.Fatal(err)
		}
		before := len(h.noted())
		h.signal()
		if said := h.noted()[before:]; !strings.Contains(said, "was not reloaded") || !strings.Contains(said, c.want) {
			t.Errorf("%s: the host printed %q, want %q", name, said, c.want)
		}
	}
	h.runs(servers[bourse.RoleProxy])
	if err := syscall.Kill(servers[bourse.RoleWorker].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if worker := h.next(bourse.RoleWorker)[bourse.RoleWorker]; worker.Region != "gru" {
		t.Errorf("the worker restarted in region %s, want its previous settings", worker.Region)
	}
}

// A server that cannot start with its new settings does not stop the others. It starts once its settings are corrected.
func TestReloadWithSettingsThatFail(t *testing.T) {
	h := startHost(t)
	servers := h.next(bourse.RoleWorker, bourse.RoleProxy)
	<-h.started
	h.reload(hostCommon + "[worker]\n[proxy]\nregion = 'refused'\n")
	for !strings.Contains(h.noted(), "proxy has exited") {
		<-h.printed
	}
	h.runs(servers[bourse.RoleWorker])
	h.reload(hostCommon + "[worker]\n[proxy]\nregion = 'mad'\n")
	if proxy := h.next(bourse.RoleProxy)[bourse.RoleProxy]; proxy.Region != "mad" {
		t.Errorf("proxy %+v, want region mad", proxy)
	}
}

// The host exits with an error if a server cannot start the first time.
func TestHostThatCannotStart(t *testing.T) {
	t.Setenv(runsServer, "1")
	shell := &cli.Shell{Env: cli.Env{Err: cli.Stream{ReadWriter: struct {
		io.Reader
		io.Writer
	}{nil, io.Discard}}, Now: time.Now, Getenv: os.Getenv}}
	for _, text := range []string{strings.Replace(twoServers, "gru", "refused", 1), hostCommon, hostCommon + "[worker]\nmemry = 1\n"} {
		err := RunHost(t.Context(), shell, file(t, text), func(Ready) error { return nil }, func() error { return nil })
		if bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", text, err)
		}
	}
}

// --check prints every problem. It runs nothing.
func TestCheck(t *testing.T) {
	line := clitest.Of(func(s *cli.Shell) *cobra.Command { return New(s, Roles{}) })
	valid, wrong := file(t, "[broker]\n"), file(t, "[broker]\norders = -1\nregoin = 1\n")
	if got := line.Run(t, "serve", "--check", "--config", valid); got.Code != 0 || !strings.Contains(got.Out, "broker") {
		t.Errorf("valid file: %+v", got)
	}
	if got := line.Run(t, "serve", "--check", "--config", wrong); got.Code != 2 || !strings.Contains(got.Err, ":2:1: ") || !strings.Contains(got.Err, ":3:1: ") {
		t.Errorf("file with two problems: %+v", got)
	}
	if got := line.Run(t, "serve", "--check", "--config", valid+".none"); got.Code != 3 {
		t.Errorf("missing file: %+v", got)
	}
}

// If several signals arrive in a row, the last one takes effect.
func TestReloadTwice(t *testing.T) {
	h := startHost(t)
	h.next(bourse.RoleWorker, bourse.RoleProxy)
	<-h.started
	for i := range 10 {
		if err := os.WriteFile(h.path, fmt.Appendf(nil, "%s[worker]\n[proxy]\nregion = 'r%d'\n", hostCommon, i), 0o600); err != nil {
			t.Fatal(err)
		}
		h.hangups <- syscall.SIGHUP
	}
	for h.next(bourse.RoleProxy)[bourse.RoleProxy].Region != "r9" {
		continue
	}
}
