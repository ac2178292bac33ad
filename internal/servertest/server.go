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

// Timeout is how long a test waits for an event if the test is not about timing. It is
// long enough for a host that is busy with other tests. Only a failing test waits that long.
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
	held    []int // sockets that hold its addresses while it is stopped

	readyFile
}

// readyFile contains a server's ready file, read when the server last became ready.
type readyFile struct {
	API  string `json:"api"`    // host:port
	Addr string `json:"gossip"` // host:port
	Pull string `json:"pull"`   // host:port at which a gateway serves pollers

	Web       []string `json:"http"` // host:port of each address at which a proxy serves HTTP; likewise below
	SecureWeb []string `json:"https"`
	Streams   []string `json:"tcp"`

	TokenFile string `json:"token_file"` // path of the file with the token for clients of a broker or gateway
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

// Cluster returns the name of the test's own cluster. Different names are necessary because
// another test may get the port of a server that has stopped.
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

// Settle makes later starts use the server's current addresses. While the server is stopped by
// [Server.Kill] or [Server.Stop], the system gives these addresses to no other program.
func (s *Server) Settle() {
	s.Args, s.settled = append(s.Args, "--listen", s.API, "--gossip", s.Addr), true
	s.TB.Cleanup(s.letGo)
}

// Start starts the process, which may have run before, and waits until it is ready.
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
		return fmt.Errorf("%s is not ready", s.Name)
	}
	if !reflect.DeepEqual(now, s.readyFile) { // after Settle the addresses do not change, so other goroutines may read them
		s.readyFile = now
	}
	return nil
}

// Kill sends SIGKILL and waits until the process has ended.
func (s *Server) Kill() error {
	if err := s.Cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.Cmd.Wait() // the error reports the kill
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

// HTTP returns a client for requests to the server, with the credentials of clients and
// of its cluster's servers.
func (s *Server) HTTP(tb testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DialContext: s.Dial}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: showing{transport, s.Proof(tb), s.TokenFile}}
}

// Proof returns the proof with which the servers of its cluster identify themselves to each
// other.
func (s *Server) Proof(tb testing.TB) admission.Proof {
	secret, err := loopback.SecretOf(os.Getenv, s.Of)
	if err != nil {
		tb.Fatal(err)
	}
	return admission.Proof{Cluster: s.Of, Bearer: string(secret)}
}

// showing is a transport that adds credentials to requests that have none.
type showing struct {
	http.RoundTripper
	proof admission.Proof
	token string // path of the file with the token
}

// RoundTrip implements http.RoundTripper.
func (s showing) RoundTrip(r *http.Request) (*http.Response, error) {
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

// Agreed returns an error unless each broker knows its cluster, which has the given number of
// members, and all members have the same view.
func Agreed(ctx context.Context, members int, brokers ...*machinesapi.Client) error {
	for _, api := range brokers {
		h, err := api.ViewHealth(ctx)
		if err != nil {
			return err
		}
		if len(h.Members) != members {
			return fmt.Errorf("%s knows %d members, want %d", api.BaseURL, len(h.Members), members)
		}
		for i := range h.Members {
			m := &h.Members[i]
			if m.State != machinesapi.ViewOK || m.Error != "" || m.Quarantine.Rows > 0 {
				return fmt.Errorf("according to %s, %s is %s: %d behind, %v differ, %d in quarantine, error %q",
					api.BaseURL, m.ID, m.State, m.Behind, m.Differs, m.Quarantine.Rows, m.Error)
			}
			if diff := gocmp.Diff(h.Members[0].Tables, m.Tables); diff != "" {
				return fmt.Errorf("according to %s, %s and %s have different tables:\n%s", api.BaseURL, h.Members[0].ID, m.ID, diff)
			}
		}
		if !h.Agrees {
			return fmt.Errorf("according to %s, the views do not agree", api.BaseURL)
		}
		if _, err := api.Regions(ctx); err != nil { // the view's health is served before the broker knows its cluster
			return err
		}
	}
	return nil
}

// Within polls a condition until it holds or limit has passed, and reports whether it
// holds. It is for changes in other processes, which send no events.
func Within(limit time.Duration, yes func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if yes() {
			return true
		}
	}
	return false
}
