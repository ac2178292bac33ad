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
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Timeout is how long a test waits for an event, unless the test is about timing. It is long enough
// even on a host that is busy with other tests. Only a failing test waits that long.
const Timeout = time.Minute

// Server is a server process.
type Server struct {
	TB     testing.TB
	Name   string
	Of     string // the name of its cluster
	Args   []string
	Ready  string                // path of its ready file
	Path   string                // path of the program that it runs; default: Program
	Launch func(*exec.Cmd) error // starts the process in other namespaces; nil means this process's namespaces
	Dial   DialFunc              // connects to the server in its namespaces; nil means from this process's namespaces
	Cmd    *exec.Cmd

	settled bool
	held    []int // sockets that are bound to its addresses while it is stopped

	readyFile
}

// readyFile holds the contents of a server's ready file from the last time the server became ready.
type readyFile struct {
	API  string `json:"api"`    // host:port
	Addr string `json:"gossip"` // host:port
	Pull string `json:"pull"`   // host:port on which a gateway serves pollers

	Web       []string `json:"http"` // host:port of each address on which a proxy serves HTTP; likewise HTTPS and TCP below
	SecureWeb []string `json:"https"`
	Streams   []string `json:"tcp"`

	TokenFile string `json:"token_file"` // path of the file with the token for clients of a broker or gateway
}

// DialFunc opens a connection to an address.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Start starts a server, and stops it when the test ends. args must begin with "serve" and the
// role.
func Start(tb testing.TB, name string, args ...string) *Server {
	tb.Helper()
	s := New(tb, name, args...)
	StartAll(tb, s)
	return s
}

// New returns a server that is not started. A worker gets its own range of machine ports.
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

// Cluster returns the name of the test's cluster. Each test uses a different name, because one
// test's server may get the port of another test's stopped server.
func Cluster(tb testing.TB) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, tb.Name(), os.Getpid(), began.UnixNano()) // writing to a hash cannot fail
	return "test-" + strconv.FormatUint(h.Sum64(), 36)
}

// StartAll starts servers concurrently. They are stopped when the test ends.
func StartAll(tb testing.TB, servers ...*Server) {
	tb.Helper()
	tb.Cleanup(func() {
		for _, s := range servers {
			if s.Cmd != nil && s.Cmd.Process != nil {
				_ = s.Cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
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

// Settle makes the server keep its current addresses across restarts. They remain reserved while
// the server is stopped by [Server.Kill] or [Server.Stop].
func (s *Server) Settle() {
	s.Args, s.settled = append(s.Args, "--listen", s.API, "--gossip", s.Addr), true
	s.TB.Cleanup(s.letGo)
}

// Start starts the process, possibly again, and waits until it is ready.
func (s *Server) Start() error {
	if err := os.Remove(s.Ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.Cmd = exec.Command(cmp.Or(s.Path, Program), s.Args...) //nolint:noctx // the test stops it cleanly
	s.Cmd.Stderr = s.TB.Output()
	s.letGo()
	if err := s.Launch(s.Cmd); err != nil {
		return err
	}
	var now readyFile
	if !Within(Timeout, func() bool {
		text, err := os.ReadFile(s.Ready)
		return err == nil && json.Unmarshal(text, &now) == nil
	}) {
		return fmt.Errorf("%s did not become ready within %s", s.Name, Timeout)
	}
	if !reflect.DeepEqual(now, s.readyFile) { // after Settle the addresses do not change, so other goroutines may read them
		s.readyFile = now
	}
	return nil
}

// Kill sends SIGKILL and waits until the process has exited.
func (s *Server) Kill() error {
	if err := s.Cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.Cmd.Wait() // the error reports the kill
	s.reserve()
	return nil
}

// Stop sends SIGTERM and waits until the process has exited. It returns an error if the exit status
// is not 0.
func (s *Server) Stop() error {
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := s.Cmd.Wait()
	s.reserve()
	return err
}

// HTTP returns an HTTP client that adds credentials to its requests: those of the cluster's servers
// to calls between servers, and the clients' token to all other requests.
func (s *Server) HTTP(tb testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DialContext: s.Dial}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: authenticating{transport, s.Proof(tb), s.TokenFile}}
}

// Proof returns the [admission.Proof] of the cluster's servers.
func (s *Server) Proof(tb testing.TB) admission.Proof {
	secret, err := loopback.SecretOf(os.Getenv, s.Of)
	if err != nil {
		tb.Fatal(err)
	}
	return admission.Proof{Cluster: s.Of, Bearer: string(secret)}
}

// authenticating is a transport that adds credentials to requests.
type authenticating struct {
	http.RoundTripper
	proof admission.Proof
	token string // path of the file with the token
}

// RoundTrip implements http.RoundTripper.
func (s authenticating) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if strings.HasPrefix(r.URL.Path, "/worker/") || strings.HasPrefix(r.URL.Path, "/view/") {
		s.proof.ShowTo(r.Header, r.URL.Host)
	} else if text, err := os.ReadFile(s.token); err == nil && r.Header.Get("Authorization") == "" { // the file does not exist while the server is down
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
	}
	return s.RoundTripper.RoundTrip(r)
}

// Client returns a client of a broker's API.
func Client(tb testing.TB, broker *Server) *machinesapi.Client {
	return &machinesapi.Client{BaseURL: "http://" + broker.API, HTTP: broker.HTTP(tb)}
}

// Agreed returns nil if, according to each broker, the cluster has the given number of members and
// all of them have the same view. Otherwise, it returns an error that describes a difference.
func Agreed(ctx context.Context, members int, brokers ...*machinesapi.Client) error {
	for _, api := range brokers {
		h, err := api.ViewHealth(ctx)
		if err != nil {
			return err
		}
		if len(h.Members) != members {
			return fmt.Errorf("broker %s: got %d members, want %d", api.BaseURL, len(h.Members), members)
		}
		for i := range h.Members {
			m := &h.Members[i]
			if m.State != machinesapi.ViewOK || m.Error != "" || m.Quarantine.Rows > 0 {
				return fmt.Errorf("broker %s: the view of %s is %s: %d transactions behind, tables %v differ, %d rows in quarantine, error %q",
					api.BaseURL, m.ID, m.State, m.Behind, m.Differs, m.Quarantine.Rows, m.Error)
			}
			if diff := gocmp.Diff(h.Members[0].Tables, m.Tables); diff != "" {
				return fmt.Errorf("broker %s: %s and %s have different tables:\n%s", api.BaseURL, h.Members[0].ID, m.ID, diff)
			}
		}
		if !h.Agrees {
			return fmt.Errorf("broker %s: the views do not agree", api.BaseURL)
		}
		if _, err := api.Regions(ctx); err != nil { // the view's health is served before the broker knows its cluster
			return err
		}
	}
	return nil
}

// Within calls done repeatedly until it returns true or limit has passed, and reports whether done
// returned true. Use it to wait for changes in other processes, which do not send events.
func Within(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}
