package test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
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

// TestJoin builds a cluster of three bare hosts, using only the commands that Bourse
// prints. Each host is a network namespace with its own files. The test ends once an
// app on one host has answered through the proxy of another, and a removed host has
// joined again. Along the way, two hosts use the same token, which is valid for one, at
// the same time.
func TestJoin(t *testing.T) {
	lan := newLAN(t)
	first, second, third := lan.bare("h1"), lan.bare("h2"), lan.bare("h3")
	out := first.start("bourse worker list", first.setup("init", "--region", "gru")...)
	token := joinLine.FindString(out.printed())
	if token == "" {
		t.Fatalf("init printed no token:\n%s", out.printed())
	}
	if _, err := first.run(first.setup("init")...); err == nil || !strings.Contains(err.Error(), "already part of a cluster") {
		t.Errorf("init on a member: %v", err)
	}
	if _, err := third.run(third.setup("join", token[:len(token)-3])...); err == nil || !strings.Contains(err.Error(), "incomplete or was changed") {
		t.Errorf("half a token: %v", err)
	}

	// Two hosts use a token that is valid for one.
	tried := make(chan *bareHost, 2)
	began := time.Now()
	for _, h := range []*bareHost{second, third} {
		go func() {
			s, err := h.begin(h.setup("join", token)...)
			if err != nil {
				t.Error(err)
				tried <- h
				return
			}
			for {
				select {
				case <-s.exited:
					if !strings.Contains(s.printed(), "has been used") {
						t.Errorf("%s: %v: %s", h.name, s.err, s.printed())
					}
					tried <- h
					return
				case <-time.After(10 * time.Millisecond):
				}
				if strings.Contains(s.printed(), "is part of cluster") {
					t.Logf("%s joined within %s", h.name, time.Since(began))
					tried <- nil
					return
				}
			}
		}()
	}
	var refused *bareHost
	for range 2 {
		if h := <-tried; h != nil && refused != nil {
			t.Fatal("both hosts were refused")
		} else if h != nil {
			refused = h
		}
	}
	if refused == nil {
		t.Fatal("two hosts used a token for one")
	}
	other, err := first.run("token", "join", "--region", "gru")
	if err != nil {
		t.Fatal(err)
	}
	joined := refused.start("is part of cluster", refused.setup("join", strings.TrimSpace(other))...)
	eventually(t, patience, "all hosts are workers", func() error {
		list, err := first.run("worker", "list")
		for _, h := range []*bareHost{first, second, third} {
			if err == nil && !regexp.MustCompile(`(?m)^`+h.name+` .* ok `).MatchString(list) {
				err = fmt.Errorf("%s is missing:\n%s", h.name, list)
			}
		}
		return err
	})

	for _, h := range []*bareHost{first, second, third} {
		eventually(t, patience, h.name+" finds its connections in order", h.examine)
	}

	// The configuration of the host that joined last is changed to allow the image
	// host.
	joined.stop()
	config, err := os.ReadFile(refused.file("etc", "bourse.toml"))
	if err != nil {
		t.Fatal(err)
	}
	config = append(config, "allow-host = true\nephemeral = true\n"...)
	if err := os.WriteFile(refused.file("etc", "bourse.toml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	refused.nearlyExpired(first)
	serve := []string{"serve", "--config", refused.file("etc", "bourse.toml")}
	serving := refused.start(`"role":"worker"`, serve...)
	if _, err := first.run("app", "create", "web"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "a machine runs", func() error {
		_, err := first.run("machine", "run", "host", "--app", "web", "--region", "gru", "--port", "80", "--", "sh", "-c",
			"exec python3 -m http.server $PORT")
		return err
	})
	client := &http.Client{Transport: &http.Transport{DialContext: first.dial}}
	eventually(t, patience, "the app answers through the proxy", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+first.addr.String()+"/", nil)
		if err != nil {
			return err
		}
		req.Host = "web.localhost"
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		return err
	})

	// In the meantime, the worker must have renewed its certificate.
	eventually(t, patience, "the certificate is renewed", func() error {
		if left := time.Until(refused.certificate().NotAfter); left < admission.RenewedLife-time.Hour {
			return fmt.Errorf("it expires in %s", left)
		}
		return nil
	})

	// Once the worker is removed, its certificate must be refused, even after a
	// restart.
	if err := refused.handshake(first); err != nil {
		t.Errorf("before the removal: %v", err)
	}
	if _, err := first.run("member", "remove", refused.name, "--yes", "--force"); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	lockedOut := func() error {
		if err := refused.handshake(first); err == nil {
			return errors.New("a broker accepts its certificate")
		}
		return first.lists(refused.name + ` +worker +gru +removed `)
	}
	eventually(t, patience, "the removed worker is locked out", lockedOut)
	t.Logf("locked out within %s", time.Since(began))
	serving.stop()
	serving = refused.start(`"role":"worker"`, serve...)
	if err := lockedOut(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	serving.stop()

	// The worker can join again under the same name.
	if err := os.Remove(refused.file("etc", "bourse.toml")); err != nil {
		t.Fatal(err)
	}
	if other, err = first.run("token", "join", "--region", "gru"); err != nil {
		t.Fatal(err)
	}
	refused.start("is part of cluster", refused.setup("join", strings.TrimSpace(other))...)
	eventually(t, patience, "it is a member again", func() error { return first.lists(refused.name + ` +worker +gru +ok `) })
}

// lists returns an error unless a line of "member list" matches pattern.
func (h *bareHost) lists(pattern string) error {
	list, err := h.run("member", "list")
	if err == nil && !regexp.MustCompile("(?m)^"+pattern).MatchString(list) {
		err = fmt.Errorf("the members are\n%s", list)
	}
	return err
}

// handshake connects to another host's broker with the certificate of this host's
// worker. It returns an error if the broker refuses the certificate.
func (h *bareHost) handshake(to *bareHost) error {
	creds, err := admission.Load(admission.Files{CA: h.file("etc", "ca.pem"), Pair: h.file("etc", h.name+".pem")})
	if err != nil {
		h.t.Fatal(err)
	}
	config := creds.Client()
	config.ServerName = admission.Identity{ID: bourse.WorkerID(to.name + "-broker"), Role: bourse.RoleBroker}.ServerName()
	conn, err := h.dial(h.t.Context(), "tcp", netip.AddrPortFrom(to.addr, 4280).String())
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	secure := tls.Client(conn, config)
	if _, err := io.WriteString(secure, "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	_, err = secure.Read(make([]byte, 1)) // the broker checks the certificate after the handshake
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
