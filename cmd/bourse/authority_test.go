package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// authority issues the credentials of a test cluster, and stores them as files.
type authority struct {
	t   *testing.T
	dir string
	ca  *admission.CA
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t, t.TempDir(), ca}
	a.file("gossip.key", "000102030405060708090a0b0c0d0e0f\n")
	a.file("ca.pem", string(ca.Pair().Cert))
	return a
}

// file creates a file in the credentials directory.
func (a *authority) file(name, text string) {
	a.t.Helper()
	path := a.path(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) issue(id bourse.WorkerID, role bourse.Role) admission.Pair {
	a.t.Helper()
	pair, err := a.ca.Issue(admission.Identity{ID: id, Role: role}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// flags issues a certificate for a server, and returns the server's flags for its
// credentials.
func (a *authority) flags(id bourse.WorkerID, role bourse.Role) []string {
	a.t.Helper()
	pair := a.issue(id, role)
	a.file(string(id)+".pem", string(pair.PEM()))
	return []string{"--credentials", a.dir}
}
