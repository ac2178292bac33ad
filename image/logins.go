package image

import (
	"fmt"
	"os"
	"sync"

	"github.com/bourse-dev/bourse/image/credentials"
)

// dockerConfig provides the credentials from a Docker config.json file. The file is read again before each request to a
// registry, so that changes take effect.
type dockerConfig struct {
	path string

	mu     sync.Mutex
	byHost map[string]credentials.Login // credentials by registry; nil if the file has not been read yet
	err    error                        // error of the last read
}

// at reads the file again and returns the credentials for a registry.
func (l *dockerConfig) at(host string) (credentials.Login, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read()
	return l.byHost[host], l.err
}

// names reports whether the file contains an entry for a registry. It also returns true if the file cannot be read. It
// uses the result of the last read, and reads the file only if it has never been read.
func (l *dockerConfig) names(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byHost == nil {
		l.read()
	}
	_, ok := l.byHost[host]
	return ok || l.err != nil
}

func (l *dockerConfig) read() {
	l.byHost = map[string]credentials.Login{}
	raw, err := os.ReadFile(l.path)
	if err != nil {
		l.err = fmt.Errorf("credentials: %w", err)
		return
	}
	got, err := credentials.Parse(raw)
	if err != nil {
		l.err = fmt.Errorf("credentials in %s: %w", l.path, err)
		return
	}
	l.byHost, l.err = got.Logins, nil
}

// tenant identifies the credentials that are used for a registry. It is the name of an organization with its own
// credentials, or "" for all other organizations, which use the shared credentials, if any. Tenants never share
// connections, tokens or answers with other tenants.
type tenant string

// tenantOf returns an organization's tenant for a registry: the organization's name if it has its own credentials for
// the registry, and "" otherwise. It performs I/O only if the organization's file has never been read.
func (r *registries) tenantOf(org, host string) tenant {
	if l := r.orgs[org]; l != nil && l.names(host) {
		return tenant(org)
	}
	return ""
}

// freshTenantOf is like tenantOf but reads the organization's file again.
func (r *registries) freshTenantOf(org, host string) tenant {
	if l := r.orgs[org]; l != nil {
		_, _ = l.at(host) // tenantOf uses the result of this read, even if it is an error
	}
	return r.tenantOf(org, host)
}

// login returns a tenant's credentials for a registry. Callers should report its error only if the registry requires
// credentials.
func (r *registries) login(who tenant, host string) (credentials.Login, error) {
	if who != "" {
		if l := r.orgs[string(who)]; l != nil {
			return l.at(host) // do not fall back to the shared credentials, even if the file no longer contains any
		}
		return credentials.Login{}, nil
	}
	if c, ok := r.config[host]; ok && c.Password != "" {
		return credentials.Login{Name: c.Username, Secret: c.Password}, nil
	}
	if r.shared == nil {
		return credentials.Login{}, nil
	}
	return r.shared.at(host)
}
