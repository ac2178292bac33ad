package registrytest

import (
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/log"
	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"golang.org/x/crypto/bcrypt"

	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"             // registers the type of authentication that configure selects
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // registers the storage driver that configure selects
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"   // registers the storage driver that configure selects
)

// Options configures a registry. The zero value stores content in memory and serves plain
// HTTP without credentials.
type Options struct {
	TLS                bool   // use TLS with a certificate of a new CA; see Registry.CA
	Username, Password string // if set, clients must send these credentials
	Dir                string // directory for the content; "": memory
	Address            string // host:port to listen on; default: a free port on loopback
}

// Registry is a registry for one test. It stops when the test ends.
type Registry struct {
	Host string // "127.0.0.1:41234", as in an image's name
	CA   string // path of the CA's certificate; empty without TLS

	options Options
	app     http.Handler

	mu     sync.Mutex
	server *httptest.Server // nil while stopped
	ended  chan struct{}    // closed when the server stops, so that hanging replies end
	fault  func(*http.Request) Fault
	stats  Stats
}

// Start starts a registry, which runs until the test ends.
func Start(tb testing.TB, o Options) *Registry {
	tb.Helper()
	// Disable logging, because by default, the registry and containerd's client log every request to
	// standard error.
	if err := log.SetLevel(log.PanicLevel); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	app := handlers.NewApp(ctx, configure(tb, o))
	r := &Registry{options: o, app: app}
	if err := r.listen(cmp.Or(o.Address, "127.0.0.1:0")); err != nil {
		cancel()
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		r.Stop()
		_ = app.Shutdown() // ignore the error, because the storage is temporary
		cancel()
	})
	r.Host = r.server.Listener.Addr().String()
	if o.TLS {
		r.CA = filepath.Join(tb.TempDir(), "ca.pem")
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
		if err := os.WriteFile(r.CA, text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

// configure returns the registry's configuration.
func configure(tb testing.TB, o Options) *configuration.Configuration {
	tb.Helper()
	c := &configuration.Configuration{
		Storage: configuration.Storage{
			"inmemory":    {},
			"maintenance": {"uploadpurging": map[any]any{"enabled": false}},
		},
		// Disable validation, because tests push invalid images.
		Validation: configuration.Validation{Disabled: true},
	}
	c.HTTP.Secret = "of a test"
	if o.Dir != "" {
		delete(c.Storage, "inmemory")
		c.Storage["filesystem"] = configuration.Parameters{"rootdirectory": o.Dir}
	}
	if o.Username != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(o.Password), bcrypt.MinCost)
		if err != nil {
			tb.Fatal(err)
		}
		path := filepath.Join(tb.TempDir(), "htpasswd")
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s:%s\n", o.Username, hash), 0o600); err != nil {
			tb.Fatal(err)
		}
		c.Auth = configuration.Auth{"htpasswd": {"realm": "test", "path": path}}
	}
	return c
}

// Name returns the full name of an image in the registry: "web:v1" becomes "127.0.0.1:41234/web:v1".
func (r *Registry) Name(image string) string { return r.Host + "/" + image }

// Stop stops the server and breaks its connections. The content is kept for [Registry.Restart].
func (r *Registry) Stop() {
	r.mu.Lock()
	server := r.server
	if server != nil {
		close(r.ended)
	}
	r.server = nil
	r.mu.Unlock()
	if server != nil {
		server.CloseClientConnections()
		server.Close()
	}
}

// Restart starts the server again at the same address.
func (r *Registry) Restart(tb testing.TB) {
	tb.Helper()
	r.Stop()
	if err := r.listen(r.Host); err != nil {
		tb.Fatal(err)
	}
}

func (r *Registry) listen(address string) error {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(r)
	_ = server.Listener.Close() // close the listener that NewUnstartedServer has opened on another port
	server.Listener = listener
	// Do not log failed TLS handshakes, which some tests provoke.
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.ended = server, make(chan struct{})
	if r.options.TLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	return nil
}
