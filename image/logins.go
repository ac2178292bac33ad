package image

import (
	"fmt"
	"os"
	"sync"

	"github.com/bourse-dev/bourse/image/credentials"
)

// logins are the credentials of one file, docker's config.json. The file is
// read whenever a registry is about to be asked, so that a change of it counts.
type logins struct {
	path string

	mu     sync.Mutex
	byHost map[string]credentials.Login // as last read; nil: not yet
	err    error                        // of that reading
}

// at reads the file again and returns what it has for a registry.
func (l *logins) at(host string) (credentials.Login, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read()
	return l.byHost[host], l.err
}

// names reports whether the file names a registry, or cannot be read. It looks
// at the disk once only.
func (l *logins) names(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byHost == nil {
		l.read()
	}
	_, ok := l.byHost[host]
	return ok || l.err != nil
}

func (l *logins) read() {
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

// asker is with whose credentials a registry is asked: those of an
// organisation, or for "" those that all organisations share, or none. Two
// askers share no connection, token or answer.
type asker string

// asker returns the identity with which an organisation asks a registry: as itself where it has
// credentials of its own there. It reads only memory.
func (r *registries) asker(org, host string) asker {
	if l := r.orgs[org]; l != nil && l.names(host) {
		return asker(org)
	}
	return ""
}

// askerNow is asker by the present content of the organisation's file.
func (r *registries) askerNow(org, host string) asker {
	if l := r.orgs[org]; l != nil {
		_, _ = l.at(host) // asker looks at both
	}
	return r.asker(org, host)
}

// login returns the credentials for a registry and an asker. The error is for when
// the registry requires some.
func (r *registries) login(who asker, host string) (credentials.Login, error) {
	if who != "" {
		if l := r.orgs[string(who)]; l != nil {
			return l.at(host) // none any more: then nothing, rather than the others'
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
