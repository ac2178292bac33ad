package hostile

import (
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestRevokedTokenWithTwoBrokers checks that a token that one broker has created is valid at the other one. A token
// that one broker has revoked must become invalid at both: immediately at this broker, and after the gossip delay at
// the other. A starting broker must never reject a valid token as unknown, and must never accept the revoked one.
func TestRevokedTokenWithTwoBrokers(t *testing.T) {
	one, _ := startPair(t)
	two := servertest.Start(t, "broker-2", "serve", "broker", "--listen", "127.0.0.1:0", "--join", one.Addr)
	root := servertest.Client(t, one).Tokens()
	rootOfTwo := servertest.Client(t, two).Tokens()
	issue := func() machinesapi.Token {
		t.Helper()
		made, err := root.Create(t.Context(), machinesapi.CreateToken{Name: "ci", Org: bourse.DefaultOrg, Expiry: bourse.Duration(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	show := func(at *servertest.Server, token string) int {
		by := scraper{t, http.DefaultClient, token, ""}
		status, _ := by.ask("GET", "http://"+at.API+"/v1/apps")
		return status
	}
	good, bad := issue(), issue()
	for _, token := range []string{good.Token, bad.Token} {
		if status := show(one, token); status != 200 {
			t.Fatalf("request to the broker that created the token: status %d, want 200", status)
		}
		if !servertest.Within(servertest.Timeout, func() bool { return show(two, token) == 200 }) {
			t.Fatal("the other broker does not accept the token")
		}
	}
	if _, err := rootOfTwo.Revoke(t.Context(), bad.ID, false); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if status := show(two, bad.Token); status != 401 {
		t.Errorf("request to the broker that revoked the token: status %d, want 401", status)
	}
	if !servertest.Within(servertest.Timeout, func() bool { return show(one, bad.Token) == 401 }) {
		t.Error("the other broker still accepts the revoked token")
	}
	t.Logf("revoked everywhere after %s", time.Since(began))

	two.Settle()
	if err := two.Kill(); err != nil {
		t.Fatal(err)
	}
	started := inBackground(func() {
		if err := two.Start(); err != nil {
			t.Error(err)
		}
	})
	api := two.API // keep the address after the restart
	for over := false; !over; {
		select {
		case <-started:
			over = true // check once more, then stop
		default:
		}
		by := scraper{t, http.DefaultClient, good.Token, ""}
		if status, text := by.ask("GET", "http://"+api+"/v1/apps"); status == 401 {
			t.Fatalf("a starting broker rejected a valid token as unknown: %s", text)
		}
		by.token = bad.Token
		if status, _ := by.ask("GET", "http://"+api+"/v1/apps"); status == 200 {
			t.Fatal("a starting broker accepted a revoked token")
		}
	}
	if !servertest.Within(servertest.Timeout, func() bool { return show(two, good.Token) == 200 }) {
		t.Error("after its start the broker does not accept a valid token")
	}
	if status := show(two, bad.Token); status != 401 {
		t.Errorf("request with the revoked token after the start: status %d, want 401", status)
	}
}

// inBackground runs do in a goroutine, and returns a channel that is closed when do returns.
func inBackground(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	return done
}
