package admission_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// write replaces a file by renaming another one, so that the file never contains only part of the text.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// looks calls Look twice, because a change takes effect at the second call, and returns the
// combined results.
func looks(w admission.Watched) (changed bool, err error) {
	for range 2 {
		c, e := w.Look()
		changed = changed || c
		if e != nil {
			err = e
		}
	}
	return changed, err
}

// TestChangedTokensAreReloaded checks that a token removed from the file is no longer accepted. A file that cannot be
// read must change nothing and cause one error.
func TestChangedTokensAreReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, []byte(orgToken+" acme\n"+allToken+" *\n"))
	set, err := admission.LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	known := func(token string) bool {
		_, ok := set.Lookup(token)
		return ok
	}
	if changed, err := looks(set); changed || err != nil {
		t.Errorf("without a change: %v, %v", changed, err)
	}
	write(t, path, []byte("no token\n"))
	if changed, err := looks(set); changed || bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a broken file: %v, %v", changed, err)
	}
	if _, err := looks(set); err != nil {
		t.Errorf("the error for the same broken file was returned again: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := looks(set); err == nil {
		t.Error("no error for a missing file")
	}
	if !known(orgToken) || !known(allToken) {
		t.Error("the tokens were lost because of a broken file")
	}
	write(t, path, []byte(allToken+" *\n"))
	if changed, err := looks(set); !changed || err != nil {
		t.Errorf("a valid file: %v, %v", changed, err)
	}
	if known(orgToken) || !known(allToken) {
		t.Error("the tokens differ from those in the file")
	}
}

// serverFiles contains the paths of the files with a server's credentials.
type serverFiles struct{ admission.Files }

func newServerFiles(t *testing.T) serverFiles {
	dir := t.TempDir()
	return serverFiles{admission.Files{CA: filepath.Join(dir, "ca.pem"), Pair: filepath.Join(dir, "pair.pem")}}
}

func (f serverFiles) put(t *testing.T, pair admission.Pair, cas ...*admission.CA) {
	t.Helper()
	var all []byte
	for _, ca := range cas {
		all = append(all, ca.Pair().Cert...)
	}
	write(t, f.CA, all)
	write(t, f.Pair, pair.PEM())
}

// shake performs a TLS handshake between a client and a server, and returns the errors of both.
func shake(t *testing.T, server *tls.Config, client *admission.Credentials, name string) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() {
		defer a.Close()
		served <- tls.Server(a, server).HandshakeContext(t.Context())
	}()
	config := client.Client().Clone()
	config.ServerName = name
	end := tls.Client(b, config)
	err := end.HandshakeContext(t.Context())
	if err == nil {
		_, _ = io.Copy(io.Discard, end) // reads until the server closes the connection
	}
	b.Close()
	return errors.Join(err, <-served)
}

// TestRollover replaces a cluster's CA while two servers are running: the files contain first
// both CAs, then certificates of the new CA, and then only the new CA.
func TestRollover(t *testing.T) {
	now := time.Now()
	old, next := newCA(t, now), newCA(t, now)
	broker1 := admission.Identity{ID: "b-1", Role: bourse.RoleBroker}
	workers, brokers := newServerFiles(t), newServerFiles(t)
	workers.put(t, issue(t, old, worker1, now), old)
	brokers.put(t, issue(t, old, broker1, now), old)
	worker, err := admission.Load(workers.Files)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := admission.Load(brokers.Files)
	if err != nil {
		t.Fatal(err)
	}
	serving := worker.Server(bourse.RoleBroker) // created once, as in a server
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"the old CA", func() {}},
		{"both CAs", func() {
			workers.put(t, issue(t, old, worker1, now), old, next)
			brokers.put(t, issue(t, old, broker1, now), next, old)
		}},
		{"one certificate of the new CA", func() { workers.put(t, issue(t, next, worker1, now), old, next) }},
		{"certificates of the new CA", func() { brokers.put(t, issue(t, next, broker1, now), old, next) }},
		{"the new CA", func() {
			workers.put(t, issue(t, next, worker1, now), next)
			brokers.put(t, issue(t, next, broker1, now), next)
		}},
	} {
		step.do()
		for _, c := range []*admission.Credentials{worker, broker} {
			if _, err := looks(c); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		if err := shake(t, serving, broker, worker1.ServerName()); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	late, err := admission.NewCredentials(next.Pair().Cert, issue(t, old, broker1, now))
	if err == nil || late != nil {
		t.Fatal("a certificate of another CA was accepted")
	}
	both, err := admission.NewCredentials(append(old.Pair().Cert, next.Pair().Cert...), issue(t, old, broker1, now))
	if err != nil {
		t.Fatal(err)
	}
	if shake(t, serving, both, worker1.ServerName()) == nil {
		t.Error("a certificate of the removed CA was accepted")
	}
}

// TestBrokenCredentialsAreRefused checks that a key that does not belong to the certificate, and the certificate of
// another server, are refused and that the old credentials remain in use.
func TestBrokenCredentialsAreRefused(t *testing.T) {
	now := time.Now()
	ca := newCA(t, now)
	files := newServerFiles(t)
	good := issue(t, ca, worker1, now)
	files.put(t, good, ca)
	c, err := admission.Load(files.Files)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := admission.NewCredentials(ca.Pair().Cert, issue(t, ca, admission.Identity{ID: "b-1", Role: bourse.RoleBroker}, now))
	if err != nil {
		t.Fatal(err)
	}
	serving := c.Server(bourse.RoleBroker)
	for name, pair := range map[string]admission.Pair{
		"another key":    {Cert: good.Cert, Key: issue(t, ca, worker1, now).Key},
		"another worker": issue(t, ca, admission.Identity{ID: "mad-2", Role: bourse.RoleWorker}, now),
		"an expired one": issue(t, ca, worker1, now.Add(-2*365*24*time.Hour)),
		"nothing":        {},
	} {
		files.put(t, pair, ca)
		if changed, err := looks(c); changed || bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, %v; want an error", name, changed, err)
		}
		if err := shake(t, serving, broker, worker1.ServerName()); err != nil {
			t.Errorf("%s: connection with the old credentials failed: %v", name, err)
		}
	}
}
