package test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
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
	"github.com/bourse-dev/bourse/internal/servertest"
)

// bareHost is a host on which nothing is installed except the program.
type bareHost struct {
	*host
	t    *testing.T
	name string
	dir  string // directory of the host's files
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
	c := exec.Command(servertest.Program, words...)
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
	eventually(h.t, patience, "bourse "+words[0]+" on "+h.name+" prints "+want, func() error {
		if !strings.Contains(s.printed(), want) {
			return errors.New("not yet")
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
		err = fmt.Errorf("the members are\n%s", list)
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
				return fmt.Errorf("%s: %s: %s", f.Check, f.Status, f.Finding)
			}
			reached = reached || f.Check == "members"
		}
	}
	if !reached {
		return fmt.Errorf("no other member was asked: %s", out)
	}
	return nil
}

// nearlyExpired replaces the certificate of the host's worker with one that expires in
// a day.
func (h *bareHost) nearlyExpired(first *bareHost) {
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
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		h.t.Fatal(err)
	}
	who := admission.Identity{ID: bourse.WorkerID(h.name), Role: bourse.RoleWorker}
	cert, err := issuer.Sign(request, who, nil, time.Now().Add(24*time.Hour-admission.RenewedLife))
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.file("etc", h.name+".pem"), append(cert, private...), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// certificate returns the certificate of the host's worker.
func (h *bareHost) certificate() *x509.Certificate {
	h.t.Helper()
	text, err := os.ReadFile(h.file("etc", h.name+".pem"))
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
