package nats_test

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/bourse-dev/bourse/fabric/nats"
)

// TestReplacedCredsAreUsed replaces a credentials file while a link is connected. The next
// connection must use the new credentials, so that a revoked user can be replaced without a
// restart.
func TestReplacedCredsAreUsed(t *testing.T) {
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	operatorID, _ := operator.PublicKey()
	accountID, _ := account.PublicKey()
	claims := jwt.NewAccountClaims(accountID)
	encode := func() string {
		text, err := claims.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	user := func() (id string, creds []byte) {
		key, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		id, _ = key.PublicKey()
		seed, _ := key.Seed()
		text, err := jwt.NewUserClaims(id).Encode(account)
		if err != nil {
			t.Fatal(err)
		}
		if creds, err = jwt.FormatUserConfig(text, seed); err != nil {
			t.Fatal(err)
		}
		return id, creds
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(accountID, encode()); err != nil {
		t.Fatal(err)
	}
	s := serverWith(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{jwt.NewOperatorClaims(operatorID)}, AccountResolver: resolver})
	old, creds := user()
	path := write(t, "user.creds", creds)
	l, err := nats.Open(t.Context(), nats.Config{URLs: []string{s.ClientURL()}, Creds: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := func() string {
		c, err := s.Connz(&server.ConnzOptions{Username: true})
		if err != nil || len(c.Conns) != 1 || !l.Connected() {
			return ""
		}
		return c.Conns[0].AuthorizedUser
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(patience); connected() != want; time.Sleep(time.Millisecond) {
			// Poll, because the server sends no event.
			if time.Now().After(end) {
				t.Fatalf("connected as %q, want %q", connected(), want)
			}
		}
	}
	await(old)
	next, creds := user()
	if err := os.WriteFile(path, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	claims.Revoke(old)
	text := encode()
	if err := resolver.Store(accountID, text); err != nil {
		t.Fatal(err)
	}
	known, err := s.LookupAccount(accountID)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		t.Fatal(err)
	}
	s.UpdateAccountClaims(known, changed)
	await(next)
}
