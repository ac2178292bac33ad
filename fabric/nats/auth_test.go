package nats_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
)

// works checks that a link with this configuration connects, and that another link can find and dial it.
func works(t *testing.T, c nats.Config) {
	t.Helper()
	var links [2]*nats.Link
	for i := range links {
		l, err := nats.Open(t.Context(), c)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(l.Close)
		if !l.Connected() {
			t.Fatal("the link is not connected")
		}
		links[i] = l
	}
	if found := links[0].Find(t.Context()); len(found) != 0 {
		t.Errorf("the first link found %v", found)
	}
	for end := time.Now().Add(patience); len(links[1].Find(t.Context())) == 0; { // from now on, the first link answers
		if time.Now().After(end) {
			t.Fatal("the second link does not find the first")
		}
	}
	pair(t, links[1], links[0])
}

// refuses checks that NATS rejects a link.
func refuses(t *testing.T, c nats.Config) {
	t.Helper()
	l, err := nats.Open(t.Context(), c)
	if err == nil {
		defer l.Close()
		if l.Connected() {
			t.Error("the link is connected")
		}
	}
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNKeyAndTLS connects over TLS as an nkey user who may only publish below
// the cluster's subjects and to inboxes.
func TestNKeyAndTLS(t *testing.T) {
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(admission.Identity{ID: "nats-1", Role: bourse.RoleBroker}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Pair().Cert)
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	may := &server.SubjectPermission{Allow: []string{"bourse.my.own.>", "_INBOX.>"}}
	s := serverWith(t, &server.Options{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		Nkeys:     []*server.NkeyUser{{Nkey: public, Permissions: &server.Permissions{Publish: may, Subscribe: may}}},
	})
	c := nats.Config{URLs: []string{s.ClientURL()}, Cluster: "my.own", CA: func() *x509.CertPool { return roots }, NKey: write(t, "seed", seed)}
	works(t, c)
	stranger, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	other, _ := stranger.Seed()
	for name, spoil := range map[string]func(*nats.Config){
		"another nkey": func(c *nats.Config) { c.NKey = write(t, "other", other) }, "no nkey": func(c *nats.Config) { c.NKey = "" },
		"another CA":    func(c *nats.Config) { c.CA = x509.NewCertPool },
		"no such file":  func(c *nats.Config) { c.NKey = "/no/such/file" },
		"not a seed":    func(c *nats.Config) { c.NKey = write(t, "none", []byte("hello")) },
		"no such creds": func(c *nats.Config) { c.NKey, c.Creds = "", "/no/such/file" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := c
			spoil(&bad)
			refuses(t, bad)
		})
	}
}

// TestCreds connects with the JWT and seed of a user in an operator's account.
func TestCreds(t *testing.T) {
	keys := make(map[string]nkeys.KeyPair)
	for name, create := range map[string]func() (nkeys.KeyPair, error){"operator": nkeys.CreateOperator, "account": nkeys.CreateAccount, "user": nkeys.CreateUser} {
		k, err := create()
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = k
	}
	public := func(name string) string { p, _ := keys[name].PublicKey(); return p }
	operator := jwt.NewOperatorClaims(public("operator"))
	account, err := jwt.NewAccountClaims(public("account")).Encode(keys["operator"])
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(public("user"))
	user, err := claims.Encode(keys["account"])
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := keys["user"].Seed()
	creds, err := jwt.FormatUserConfig(user, seed)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public("account"), account); err != nil {
		t.Fatal(err)
	}
	s := serverWith(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{operator}, AccountResolver: resolver})
	c := nats.Config{URLs: []string{s.ClientURL()}, Creds: write(t, "user.creds", creds)}
	works(t, c)
	c.Creds = ""
	if _, err := nats.Open(t.Context(), c); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("without credentials: %v", err)
	}
}
