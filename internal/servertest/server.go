package servertest

import (
	"cmp"
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

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Patience is how long a test waits for an event if the test is not about timing. It is
// long enough for a host that is busy with other tests. Only a failing test waits that long.
const Patience = time.Minute

// Server is a server process.
type Server struct {
	TB     testing.TB            `json:"-"`
	Name   string                `json:"-"`
	Of     string                `json:"-"` // its cluster
	Args   []string              `json:"-"`
	Ready  string                `json:"-"` // its ready file
	Path   string                `json:"-"` // of the program it runs; default: Program
	Launch func(*exec.Cmd) error `json:"-"` // starts it in its namespaces; default: here
	Dial   DialFunc              `json:"-"` // reaches it from there; default: from here
	Cmd    *exec.Cmd             `json:"-"`

	settled bool
	held    []int // sockets at its addresses while it is away

	// Its own report when it was last ready.
	API  string `json:"api"`    // host:port
	Addr string `json:"gossip"` // host:port
	Pull string `json:"pull"`   // host:port of a gateway

	Web       []string `json:"http"` // host:port at which a proxy serves HTTP, and so on
	SecureWeb []string `json:"https"`
	Streams   []string `json:"tcp"`

	TokenFile string `json:"token_file"` // of the clients of a broker or gateway
}

// DialFunc opens a connection to an address.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Start starts a server, which stops when the test ends. args begin with "serve" and the
// role.
func Start(tb testing.TB, name string, args ...string) *Server {
	tb.Helper()
	s := New(tb, name, args...)
	StartAll(tb, s)
	return s
}

// New returns a server that is not started. A worker gets a range of machine ports of its own.
func New(tb testing.TB, name string, args ...string) *Server {
	tb.Helper()
	s := &Server{TB: tb, Name: name, Of: Cluster(tb), Ready: filepath.Join(tb.TempDir(), name+".ready"), Launch: (*exec.Cmd).Start}
	s.Args = append(args, "--cluster", s.Of, "--ready-file", s.Ready, "--log-level", "warn")
	if len(args) > 1 && args[1] == "worker" {
		first, last := Ports(tb)
		s.Args = append(s.Args, "--ports", fmt.Sprintf("%d-%d", first, last))
	}
	return s
}

var began = time.Now()

// Cluster returns the name of the test's own cluster. Different names are necessary because
// another test may get the port of a server that has stopped.
func Cluster(tb testing.TB) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, tb.Name(), os.Getpid(), began.UnixNano()) // a hash never fails
	return "test-" + strconv.FormatUint(h.Sum64(), 36)
}

// StartAll starts servers concurrently. They stop when the test ends.
func StartAll(tb testing.TB, servers ...*Server) {
	tb.Helper()
	tb.Cleanup(func() {
		for _, s := range servers {
			if s.Cmd != nil && s.Cmd.Process != nil {
				_ = s.Cmd.Process.Signal(syscall.SIGTERM) // it may have exited
			}
		}
		for _, s := range servers {
			if s.Cmd != nil && s.Cmd.Process != nil {
				_ = s.Cmd.Wait()
			}
		}
	})
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.Start() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// Settle makes later starts use the server's current addresses. Between [Server.Kill] or
// [Server.Stop] and the next start, the system gives these addresses to no other program.
func (s *Server) Settle() {
	s.Args, s.settled = append(s.Args, "--listen", s.API, "--gossip", s.Addr), true
	s.TB.Cleanup(s.letGo)
}

// Start starts the process, again after a kill, and waits until it is ready.
func (s *Server) Start() error {
	if err := os.Remove(s.Ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.Cmd = exec.Command(cmp.Or(s.Path, Program), s.Args...) //nolint:noctx // it ends with the test, in good order
	s.Cmd.Stderr = s.TB.Output()
	s.letGo()
	if err := s.Launch(s.Cmd); err != nil {
		return err
	}
	if !Within(Patience, func() bool {
		text, err := os.ReadFile(s.Ready)
		return err == nil && json.Unmarshal(text, s) == nil
	}) {
		return fmt.Errorf("%s is not ready", s.Name)
	}
	return nil
}

// Kill sends SIGKILL and waits until the process has ended.
func (s *Server) Kill() error {
	if err := s.Cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.Cmd.Wait() // it says "killed"
	s.away()
	return nil
}

// Stop sends SIGTERM and waits until the process has ended. It returns an error if the
// exit status is not 0.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := s.Cmd.Wait()
	s.away()
	return err
}

// HTTP returns a client that reaches the server, and shows what clients and
// servers of its cluster do.
func (s *Server) HTTP(tb testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DialContext: s.Dial}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: showing{transport, s.Proof(tb), s.TokenFile}}
}

// Proof is what servers of its cluster show one another.
func (s *Server) Proof(tb testing.TB) admission.Proof {
	secret, err := loopback.SecretOf(os.Getenv, s.Of)
	if err != nil {
		tb.Fatal(err)
	}
	return admission.Proof{Cluster: s.Of, Bearer: string(secret)}
}

// showing adds credentials to every request that has none.
type showing struct {
	http.RoundTripper
	proof admission.Proof
	token string // its file
}

// RoundTrip implements http.RoundTripper.
func (s showing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if strings.HasPrefix(r.URL.Path, "/worker/") || strings.HasPrefix(r.URL.Path, "/view/") {
		s.proof.ShowTo(r.Header, r.URL.Host)
	} else if text, err := os.ReadFile(s.token); err == nil && r.Header.Get("Authorization") == "" { // a server that is down has none
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
	}
	return s.RoundTripper.RoundTrip(r)
}

// Client returns a client of a broker's API.
func Client(tb testing.TB, broker *Server) *machinesapi.Client {
	return &machinesapi.Client{BaseURL: "http://" + broker.API, HTTP: broker.HTTP(tb)}
}

// Within asks until the answer is yes or the time is over, and reports which.
// Other processes have no event to wait for.
func Within(limit time.Duration, yes func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if yes() {
			return true
		}
	}
	return false
}
