package hostile

import (
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestARevokedTokenOverTwoBrokers checks that a token that one broker has created is valid
// at the other one. A token that one broker has revoked must become invalid at both:
// immediately at this broker, and after the gossip delay at the other. A starting broker
// must never call a valid token unknown, and must never accept the revoked one.
func TestARevokedTokenOverTwoBrokers(t *testing.T) {
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
			t.Fatalf("where it was made: status %d", status)
		}
		if !servertest.Within(servertest.Timeout, func() bool { return show(two, token) == 200 }) {
			t.Fatal("the other broker does not know it")
		}
	}
	if _, err := rootOfTwo.Revoke(t.Context(), bad.ID, false); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if status := show(two, bad.Token); status != 401 {
		t.Errorf("where it was revoked: status %d", status)
	}
	if !servertest.Within(servertest.Timeout, func() bool { return show(one, bad.Token) == 401 }) {
		t.Error("the other broker takes it still")
	}
	t.Logf("revoked everywhere after %s", time.Since(began))

	two.Settle()
	if err := two.Kill(); err != nil {
		t.Fatal(err)
	}
	started := beside(func() {
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
			t.Fatalf("a broker that starts calls a token unknown: %s", text)
		}
		by.token = bad.Token
		if status, _ := by.ask("GET", "http://"+api+"/v1/apps"); status == 200 {
			t.Fatal("a broker that starts takes a revoked token")
		}
	}
	if !servertest.Within(servertest.Timeout, func() bool { return show(two, good.Token) == 200 }) {
		t.Error("after its start the broker does not take a token")
	}
	if status := show(two, bad.Token); status != 401 {
		t.Errorf("after its start: status %d", status)
	}
}

// beside runs do concurrently, and returns a channel that is closed when do returns.
func beside(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	return done
}
