package test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

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
		t.Errorf("init on a host that is already a member: %v, want \"already part of a cluster\"", err)
	}
	if _, err := third.run(third.setup("join", token[:len(token)-3])...); err == nil || !strings.Contains(err.Error(), "incomplete or was changed") {
		t.Errorf("join with a truncated token: %v, want \"incomplete or was changed\"", err)
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
						t.Errorf("join of %s with a used token: %v, want \"has been used\": %s", h.name, s.err, s.printed())
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
			t.Fatal("both hosts were refused, want one of them to join")
		} else if h != nil {
			refused = h
		}
	}
	if refused == nil {
		t.Fatal("two hosts joined with a token for one host")
	}
	other, err := first.run("token", "join", "--region", "gru")
	if err != nil {
		t.Fatal(err)
	}
	joined := refused.start("is part of cluster", refused.setup("join", strings.TrimSpace(other))...)
	eventually(t, waitTimeout, "all hosts are workers", func() error {
		list, err := first.run("worker", "list")
		for _, h := range []*bareHost{first, second, third} {
			if err == nil && !regexp.MustCompile(`(?m)^`+h.name+` .* ok `).MatchString(list) {
				err = fmt.Errorf("%s is missing:\n%s", h.name, list)
			}
		}
		return err
	})

	for _, h := range []*bareHost{first, second, third} {
		eventually(t, waitTimeout, h.name+" reports no problem with its connections", h.examine)
	}

	// The configuration of the host that joined last is changed to allow the image
	// host.
	joined.stop()
	refused.allow(true)
	refused.nearlyExpired(first)
	serve := []string{"serve", "--config", refused.file("etc", "bourse.toml")}
	serving := refused.start(`"role":"worker"`, serve...)
	if _, err := first.run("app", "create", "web"); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "a machine runs", func() error {
		_, err := first.run("machine", "run", "host", "--app", "web", "--region", "gru", "--port", "80", "--", "sh", "-c",
			"exec python3 -m http.server $PORT")
		return err
	})
	client := first.client()
	eventually(t, waitTimeout, "the app answers through the proxy", func() error {
		return first.page(client, first.addr, "web")
	})

	// In the meantime, the worker must have renewed its certificate.
	eventually(t, waitTimeout, "the certificate is renewed", func() error { return refused.renewed(bourse.RoleWorker) })

	// Once the worker is removed, its certificate must be refused, even after a
	// restart.
	if err := refused.handshake(first); err != nil {
		t.Errorf("connect to the broker before the removal: %v", err)
	}
	if _, err := first.run("member", "remove", refused.name, "--yes", "--force"); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	lockedOut := func() error {
		if err := refused.handshake(first); err == nil {
			return errors.New("the broker still accepts the removed worker's certificate")
		}
		return first.lists(refused.name + ` +worker +gru +removed `)
	}
	eventually(t, waitTimeout, "the removed worker is locked out", lockedOut)
	t.Logf("locked out within %s", time.Since(began))
	serving.stop()
	serving = refused.start(`"role":"worker"`, serve...)
	if err := lockedOut(); err != nil {
		t.Errorf("connect to the broker after its restart: %v", err)
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
	eventually(t, waitTimeout, "the worker is a member again", func() error { return first.lists(refused.name + ` +worker +gru +ok `) })
}

// TestFirstBrokerAlone creates a cluster that first consists of a single broker, which has no other members to contact,
// and then adds a worker.
func TestFirstBrokerAlone(t *testing.T) {
	lan := newLAN(t)
	first, second := lan.bare("h1"), lan.bare("h2")
	out := first.start("bourse worker list", first.setup("init", "--region", "gru", "--role", "broker")...)
	second.start("is part of cluster", second.setup("join", joinLine.FindString(out.printed()))...)
	eventually(t, waitTimeout, "the worker is a member", func() error { return first.lists(`h2 +worker +gru +ok `) })
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
