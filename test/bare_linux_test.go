package test

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// bareHost is a host on which nothing is installed except the program.
type bareHost struct {
	*host
	t    *testing.T
	name string
	dir  string // directory of the host's files

	program string   // path of the host's program; "" means servertest.Program
	serving *servers // the host's servers, if serve has started them
}

func (l *lan) bare(name string) *bareHost {
	h := &bareHost{host: l.host(1), t: l.t, name: name, dir: filepath.Join(l.t.TempDir(), name)}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		l.t.Fatal(err)
	}
	if _, err := os.Stat("/run/containerd"); err == nil { // all hosts would share this directory
		err = h.do(func() error { return unix.Unshare(unix.CLONE_NEWNS) })
		if err = errors.Join(err, h.mountSmall("/run/containerd", 1<<20)); err != nil {
			l.t.Fatal(err)
		}
	}
	return h
}

// command returns a command as a user would run it on the host.
func (h *bareHost) command(words ...string) *exec.Cmd {
	c := exec.Command(cmp.Or(h.program, servertest.Program), words...)
	c.Env = append(os.Environ(), "HOME="+h.dir)
	return c
}

// setup returns the arguments of "init" or "join", with flags that put all files below
// the host's directory.
func (h *bareHost) setup(words ...string) []string {
	return append(words, "--config", h.file("etc", "bourse.toml"), "--data", h.file("data"), "--address", h.addr.String(), "--name", h.name, "--foreground")
}

func (h *bareHost) file(path ...string) string {
	return filepath.Join(append([]string{h.dir}, path...)...)
}

// run runs a command and returns its standard output.
func (h *bareHost) run(words ...string) (string, error) {
	c := h.command(words...)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	err := h.launch(c)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s: bourse %s: %w: %s", h.name, words[0], err, problems.String())
	}
	return out.String(), err
}

// servers are a host's servers, which run in the foreground of one command.
type servers struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the command has exited
	err    error         // result of waiting for the command; valid once exited is closed
	mu     sync.Mutex
	out    bytes.Buffer
}

func (s *servers) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *servers) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// begin starts a command, which is stopped at the end of the test.
func (h *bareHost) begin(words ...string) (*servers, error) {
	s := &servers{cmd: h.command(words...), exited: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if err := h.launch(s.cmd); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	h.t.Cleanup(s.stop)
	return s, nil
}

// start starts a command, and waits until it has printed want. The command is stopped
// at the end of the test.
func (h *bareHost) start(want string, words ...string) *servers {
	h.t.Helper()
	s, err := h.begin(words...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("bourse %s on %s printed:\n%s", words[0], h.name, s.printed())
		}
	})
	eventually(h.t, waitTimeout, "bourse "+words[0]+" on "+h.name+" prints "+want, func() error {
		if !strings.Contains(s.printed(), want) {
			return fmt.Errorf("it has printed %q", s.printed())
		}
		return nil
	})
	return s
}

// stop stops the command if it is still running, and waits until it has exited.
func (s *servers) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // the command may have exited already
	<-s.exited
}

var joinLine = regexp.MustCompile(`bourse-join-\S+`)

// lists returns an error unless a line of "member list" matches pattern.
func (h *bareHost) lists(pattern string) error {
	list, err := h.run("member", "list")
	if err == nil && !regexp.MustCompile("(?m)^"+pattern).MatchString(list) {
		err = fmt.Errorf("want a line that matches %q in the member list:\n%s", pattern, list)
	}
	return err
}

// examine returns an error unless "bourse doctor" reports that this host reaches the
// other members and that they list its servers. It ignores findings about the machine
// that runs the test.
func (h *bareHost) examine() error {
	out, failed := h.run("doctor", "--json", "--config", h.file("etc", "bourse.toml"))
	var found []struct{ Check, Status, Finding string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return errors.Join(failed, err)
	}
	reached := false
	for _, f := range found {
		about, _, _ := strings.Cut(f.Check, " ")
		switch about {
		case "configuration", "credentials", "CA", "issuer", "certificate", "worker", "broker", "proxy", "join", "members", "clock":
			if f.Status != "ok" {
				return fmt.Errorf("check %s: status %s, want ok: %s", f.Check, f.Status, f.Finding)
			}
			reached = reached || f.Check == "members"
		}
	}
	if !reached {
		return fmt.Errorf("doctor did not contact any other member: %s", out)
	}
	return nil
}

// nearlyExpired replaces the certificate of the host's worker with one that expires in
// a day.
func (h *bareHost) nearlyExpired(first *bareHost) {
	h.t.Helper()
	h.certify(first, bourse.RoleWorker, time.Now().Add(24*time.Hour-admission.RenewedLife))
}

// certify replaces the certificate of one of the host's servers with one that the
// first host's issuer signed at the given time.
func (h *bareHost) certify(first *bareHost, role bourse.Role, at time.Time) {
	h.t.Helper()
	pair, err := os.ReadFile(first.file("etc", "issuer.pem"))
	if err != nil {
		h.t.Fatal(err)
	}
	issuer, err := admission.ParseCA(admission.Pair{Cert: pair, Key: pair})
	if err != nil {
		h.t.Fatal(err)
	}
	key, private, err := admission.NewKey()
	if err != nil {
		h.t.Fatal(err)
	}
	request, err := enroll.NewRequest(key)
	if err != nil {
		h.t.Fatal(err)
	}
	var hosts []string
	if role == bourse.RoleBroker {
		hosts = []string{h.addr.String()}
	}
	who := admission.Identity{ID: enroll.ServerName(bourse.WorkerID(h.name), role), Role: role}
	cert, err := issuer.Sign(request, who, hosts, at)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := wholefile.Write(h.pair(role), append(cert, private...), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// pair returns the path of the certificate and key of one of the host's servers.
func (h *bareHost) pair(role bourse.Role) string {
	return h.file("etc", string(enroll.ServerName(bourse.WorkerID(h.name), role))+".pem")
}

// certificate returns the certificate of one of the host's servers.
func (h *bareHost) certificate(role bourse.Role) *x509.Certificate {
	h.t.Helper()
	text, err := os.ReadFile(h.pair(role))
	if err != nil {
		h.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		h.t.Fatal(err)
	}
	return cert
}

// renewed returns an error unless the certificate of one of the host's servers was
// renewed within the last hour.
func (h *bareHost) renewed(role bourse.Role) error {
	if left := time.Until(h.certificate(role).NotAfter); left < admission.RenewedLife-time.Hour {
		return fmt.Errorf("the certificate of the %s on %s expires in %s, want a renewed one", role, h.name, left)
	}
	return nil
}

// allow permits machines with the image host, and gives the worker a label with the
// host's name. If ephemeral is true, the worker destroys its machines when it stops. The
// last server in the host's configuration must be the worker.
func (h *bareHost) allow(ephemeral bool) {
	h.t.Helper()
	path := h.file("etc", "bourse.toml")
	config, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	config = fmt.Appendf(config, "allow-host = true\nephemeral = %t\nlabel = [\"host=%s\"]\n", ephemeral, h.name)
	if err := os.WriteFile(path, config, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// client returns an HTTP client on the host.
func (h *bareHost) client() *http.Client {
	transport := &http.Transport{DialContext: h.dial}
	h.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// page requests an app's page from the proxy at an address.
func (h *bareHost) page(client *http.Client, proxy netip.Addr, app string) error {
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+proxy.String()+"/", nil)
	if err != nil {
		return err
	}
	req.Host = app + ".localhost"
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d, want 200: %s", resp.StatusCode, text)
	}
	return err
}
