package image

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/bourse-dev/bourse"
)

// maxRegistries bounds the registries whose connections and tokens are kept:
// orders name any.
const maxRegistries = 64

// registries knows how each registry is reached.
type registries struct {
	config map[string]Registry
	docker string // path of docker's configuration; may be empty
	stall  time.Duration
	reach  reach

	mu    sync.Mutex
	hosts map[string]docker.RegistryHost
}

// resolver gives the client of the registries. Tokens and connections are shared
// by all resolvers.
func (r *registries) resolver() remotes.Resolver {
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		h, err := r.host(host)
		if err != nil {
			return nil, err
		}
		return []docker.RegistryHost{h}, nil
	}})
}

func (r *registries) host(name string) (docker.RegistryHost, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.hosts[name]; ok {
		return h, nil
	}
	h, err := r.connect(name)
	if err != nil {
		return docker.RegistryHost{}, err
	}
	if r.hosts == nil {
		r.hosts = map[string]docker.RegistryHost{}
	}
	if len(r.hosts) >= maxRegistries {
		for other, old := range r.hosts {
			old.Client.CloseIdleConnections()
			delete(r.hosts, other)
			break
		}
	}
	r.hosts[name] = h
	return h, nil
}

func (r *registries) connect(name string) (docker.RegistryHost, error) {
	if err := r.reach.may(name); err != nil {
		return docker.RegistryHost{}, err
	}
	config, known := r.config[name]
	h := docker.RegistryHost{
		Host: name, Scheme: "https", Path: "/v2",
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
	}
	loopback, err := docker.MatchLocalhost(name)
	if err != nil {
		return h, bourse.Errorf(bourse.CodeInvalid, "registry %q: %w", name, err)
	}
	if config.PlainHTTP || loopback && config.CA == "" {
		h.Scheme = "http"
	}
	roots, err := authorities(config.CA)
	if err != nil {
		return h, bourse.Errorf(bourse.CodeUnavailable, "registry %s: the worker cannot read its authority: %w", name, err)
	}
	h.Client = &http.Client{Transport: &stalling{limit: r.stall, next: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         r.reach.dialer(known, r.stall).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: r.stall,
		MaxIdleConns:        4,
		IdleConnTimeout:     30 * time.Second,
		ForceAttemptHTTP2:   true,
	}}}
	h.Authorizer = docker.NewDockerAuthorizer(docker.WithAuthClient(h.Client), docker.WithAuthCreds(func(string) (string, string, error) {
		return r.credentials(name)
	}))
	return h, nil
}

// authorities reads the certificates that vouch for a registry; nil: the
// system's.
func authorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return pool, nil
}

// credentials gives name and password for a registry; a password without a name
// is a token. Asked when a registry wants them, so that a changed file counts.
func (r *registries) credentials(host string) (string, string, error) {
	if c, ok := r.config[host]; ok && c.Password != "" {
		return c.Username, c.Password, nil
	}
	if r.docker == "" {
		return "", "", nil
	}
	raw, err := os.ReadFile(r.docker)
	if err != nil {
		return "", "", fmt.Errorf("credentials: %w", err)
	}
	logins, err := parseDockerConfig(raw)
	if err != nil {
		return "", "", fmt.Errorf("credentials in %s: %w", r.docker, err)
	}
	login := logins[host]
	return login.name, login.secret, nil
}

// close ends the idle connections.
func (r *registries) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.hosts {
		h.Client.CloseIdleConnections()
	}
}
