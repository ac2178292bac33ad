package broker_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/machinesapi"
)

// invitations is a ledger whose join tokens consist only of their secrets.
type invitations struct{ *enroll.Ledger }

func startInviting(t *testing.T) *setup {
	t.Helper()
	l, err := enroll.OpenLedger(filepath.Join(t.TempDir(), "join-tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(c *broker.Config) { c.Invitations = invitations{l} })
}

func TestJoinTokens(t *testing.T) {
	s := startInviting(t)
	s.new = true // a cluster's first broker knows no other servers
	api := s.client(t).JoinTokens()
	got, err := api.Create(t.Context(), machinesapi.CreateJoinToken{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Token == "" || got.Uses != 1 || len(got.Roles) != 1 || got.Roles[0] != bourse.RoleWorker || got.ExpiresAt.Sub(got.CreatedAt) != time.Hour {
		t.Errorf("the default token: %+v, want one for a worker, for an hour", got)
	}
	list, err := api.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != got.ID || list[0].Token != "" {
		t.Errorf("list: %+v, %v; want only the token's description", list, err)
	}
	if err := api.Revoke(t.Context(), got.ID); err != nil {
		t.Error(err)
	}
	if err := api.Revoke(t.Context(), got.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("revoked twice: %v, want not found", err)
	}
}

func TestInvalidJoinTokens(t *testing.T) {
	s := startInviting(t)
	for _, body := range []string{
		`{"roles":["boss"]}`, `{"roles":["scraper"]}`, `{"region":"EU!"}`, `{"uses":-1}`, `{"uses":10001}`, `{"ttl":"-1s"}`, `{"ttl":"1000h"}`,
	} {
		if rec := s.call(t, "POST", "/v1/join_tokens", body); rec.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", body, rec.Code, rec.Body)
		}
	}
	if rec := start(t).call(t, "POST", "/v1/join_tokens", `{}`); rec.Code != http.StatusPreconditionFailed {
		t.Errorf("a broker without an issuer: status %d: %s", rec.Code, rec.Body)
	}
}
