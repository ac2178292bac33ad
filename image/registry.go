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
	"github.com/bourse-dev/bourse/image/credentials"
)

// maxRegistries is the maximum number of registry clients, with their connections and tokens, that are kept for reuse.
// There is one client for each combination of tenant and registry. A limit is needed because orders can name any number
// of registries.
const maxRegistries = 64

// registries contains the settings and connections of all registries.
type registries struct {
	config map[string]Registry
	shared *dockerConfig            // credentials for all organizations; may be nil
	orgs   map[string]*dockerConfig // each organization's own credentials
	stall  time.Duration
	reach  networkPolicy

	mu    sync.Mutex
	hosts map[hostKey]knownHost
}

// hostKey identifies a client by its tenant and registry. Tenants do not share connections.
type hostKey struct {
	who  tenant
	host string
}

// knownHost contains a tenant's client for a registry.
type knownHost struct {
	docker.RegistryHost
	login credentials.Login // credentials with which the client requests tokens
}

// newRegistries returns the registries for the configuration c.
func newRegistries(c *Config) *registries {
	reach := networkPolicy{c.Private, c.AllowedRegistries, proxyAddresses(http.ProxyFromEnvironment)}
	r := &registries{config: c.Registries, stall: c.Stall, reach: reach, orgs: map[string]*dockerConfig{}}
	if c.DockerConfig != "" {
		r.shared = &dockerConfig{path: c.DockerConfig}
	}
	for org, path := range c.OrgConfigs {
		r.orgs[org] = &dockerConfig{path: path}
	}
	return r
}

// resolver returns a tenant's client for registries. All of a tenant's resolvers share tokens and connections.
func (r *registries) resolver(who tenant) remotes.Resolver {
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		h, err := r.host(who, host)
		if err != nil {
			return nil, err
		}
		return []docker.RegistryHost{h}, nil
	}})
}

func (r *registries) host(who tenant, name string) (docker.RegistryHost, error) {
	login, unread := r.login(who, name)
	key := hostKey{who, name}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.hosts[key]; ok && unread == nil && h.login == login {
		return h.RegistryHost, nil
	}
	h, err := r.connect(name, login, unread)
	if err != nil {
		return docker.RegistryHost{}, err
	}
	if unread != nil { // do not retain the connection, so that the next request reads the credentials again
		return h, nil
	}
	if r.hosts == nil {
		r.hosts = map[hostKey]knownHost{}
	}
	if old, ok := r.hosts[key]; ok {
		old.Client.CloseIdleConnections()
		delete(r.hosts, key)
	}
	if len(r.hosts) >= maxRegistries {
		for other, old := range r.hosts {
			old.Client.CloseIdleConnections()
			delete(r.hosts, other)
			break
		}
	}
	r.hosts[key] = knownHost{h, login}
	return h, nil
}

// connect creates a client for a registry. If the registry requires credentials, the client sends login or, if the
// credentials could not be read, fails with the error unread.
func (r *registries) connect(name string, login credentials.Login, unread error) (docker.RegistryHost, error) {
	if err := r.reach.allowed(name); err != nil {
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
		return h, bourse.Errorf(bourse.CodeUnavailable, "registry %s: read the registry's CA file: %w", name, err)
	}
	h.Client = &http.Client{Transport: &stallTransport{limit: r.stall, next: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         r.reach.dial(known, r.stall),
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: r.stall,
		MaxIdleConns:        4,
		IdleConnTimeout:     30 * time.Second,
		ForceAttemptHTTP2:   true,
	}}}
	h.Authorizer = docker.NewDockerAuthorizer(docker.WithAuthClient(h.Client), docker.WithAuthCreds(func(string) (string, string, error) {
		return login.Name, login.Secret, unread
	}))
	return h, nil
}

// authorities reads the CA certificates for a registry. If path is empty, it returns nil, which means the system's
// certificates.
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
		return nil, fmt.Errorf("%s contains no certificate", path)
	}
	return pool, nil
}

// close closes idle connections.
func (r *registries) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.hosts {
		h.Client.CloseIdleConnections()
	}
}
