package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// bareCluster creates a cluster of three bare hosts, h1 to h3, in the region gru. Each
// runs a worker, h1 also the broker, and h1 and h2 a proxy. The app web has a machine on
// each host, all with the mark in their command lines, and answers through both proxies.
func bareCluster(t *testing.T, program, mark string) []*bareHost {
	t.Helper()
	hello := buildHello(t)
	lan := newLAN(t)
	hosts := []*bareHost{lan.bare("h1"), lan.bare("h2"), lan.bare("h3")}
	first := hosts[0]
	for i, roles := range []string{"broker,proxy,worker", "proxy,worker", "worker"} {
		h := hosts[i]
		h.install(program)
		if h == first {
			h.serving = h.start("bourse worker list", h.setup("init", "--region", "gru", "--role", roles)...)
		} else {
			token, err := first.run("token", "join", "--role", roles)
			if err != nil {
				t.Fatal(err)
			}
			h.serving = h.start("is part of cluster", h.setup("join", strings.TrimSpace(token), "--role", roles)...)
		}
		h.allow(false)
	}
	if _, err := first.run("app", "create", "web"); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		h.restart()
	}
	for _, h := range hosts {
		first.order(h, hello, mark)
	}
	for _, proxy := range hosts[:2] {
		client := proxy.client()
		eventually(t, waitTimeout, "the app answers through the proxy of "+proxy.name, func() error {
			return proxy.page(client, proxy.addr, "web")
		})
	}
	return hosts
}

// install replaces the host's program with a copy of another one.
func (h *bareHost) install(program string) {
	h.t.Helper()
	h.program = h.file("bourse")
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(h.program+".new", text, 0o755)
	}
	if err == nil {
		err = os.Rename(h.program+".new", h.program) // running processes keep the old file
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// serve starts the host's servers.
func (h *bareHost) serve() {
	h.t.Helper()
	s, err := h.begin("serve", "--config", h.file("etc", "bourse.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.serving = s
}

// restart stops the host's servers, starts them again, and waits until its worker is
// ready.
func (h *bareHost) restart() {
	h.t.Helper()
	h.serving.stop()
	h.serve()
	h.ready()
}

// ready waits until all of the host's servers are ready.
func (h *bareHost) ready() {
	h.t.Helper()
	roles := h.roles()
	eventually(h.t, waitTimeout, "the servers of "+h.name+" are ready", func() error {
		for _, role := range roles {
			if text := h.serving.printed(); !strings.Contains(text, fmt.Sprintf(`"role":%q`, role)) {
				return fmt.Errorf("the %s is not ready:\n%s", role, text)
			}
		}
		return nil
	})
}

// roles returns the roles of the servers in the host's configuration.
func (h *bareHost) roles() []bourse.Role {
	h.t.Helper()
	config, err := os.ReadFile(h.file("etc", "bourse.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(bourse.ServerRoles(), func(role bourse.Role) bool {
		return !strings.Contains(string(config), fmt.Sprintf("\n[%s]\n", role))
	})
}

// order runs a program as a machine of the app web on another host. The mark is the
// program's argument.
func (h *bareHost) order(on *bareHost, program, mark string) {
	h.t.Helper()
	order := string(bourse.NewOrderID())
	eventually(h.t, waitTimeout, "a machine runs on "+on.name, func() error {
		_, err := h.run("machine", "run", "host", "--app", "web", "--require", "host="+on.name, "--order-id", order, "--port", "80", "--vm-memory", "64MiB", "--",
			program, mark)
		return err
	})
}

// cleanUp destroys the app web, whose machines would outlive the servers.
func (h *bareHost) cleanUp() {
	if _, err := h.run("app", "destroy", "web", "--force", "--yes"); err != nil {
		h.t.Error(err)
	}
}

// buildHello builds a web server to run as a machine, and returns its path.
func buildHello(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hello")
	command(t, "go", "build", "-o", path, "github.com/bourse-dev/bourse/examples/hello")
	return path
}

// load is a constant rate of requests.
type load struct {
	mu       sync.Mutex
	answered int
	failed   []error
	end      func() // stops the load, and waits for the requests in progress
}

// startLoad calls get 20 times per second until the load is ended or the test ends.
func startLoad(t *testing.T, get func() error) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{}
	var all sync.WaitGroup
	l.end = func() { cancel(); all.Wait() }
	t.Cleanup(l.end)
	all.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				all.Go(func() { l.note(get()) })
			}
		}
	})
	return l
}

func (l *load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
		return
	}
	l.answered++
}

// count returns the number of requests that were answered.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered
}

// finish waits until another 100 requests are answered, and ends the load. No request
// may have failed.
func (l *load) finish(t *testing.T) {
	t.Helper()
	enough := l.count() + 100
	eventually(t, waitTimeout, "requests are answered", func() error {
		if n := l.count(); n < enough {
			return fmt.Errorf("%d requests succeeded, want %d", n, enough)
		}
		return nil
	})
	l.end()
	t.Logf("%d requests were answered", l.answered)
	if len(l.failed) > 0 {
		t.Errorf("%d requests failed, want none; examples: %v", len(l.failed), l.failed[:min(len(l.failed), 5)])
	}
}
