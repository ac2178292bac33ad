package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func some() []machinesapi.Token {
	at := func(d time.Duration) *time.Time { t := clitest.Now.Add(d); return &t }
	made := clitest.Now.Add(-50 * time.Hour)
	return []machinesapi.Token{
		{ID: "5be0cd19137e2179", Name: "admin", Org: "acme", MadeBy: "*", CreatedAt: made},
		{ID: "6a09e667f3bcc908", Name: "ci", Org: "acme", Apps: []bourse.AppName{"shop", "till"}, MadeBy: "admin", MadeWith: "5be0cd19137e2179", CreatedAt: made, ExpiresAt: at(20 * 24 * time.Hour)},
		{
			ID: "bb67ae8584caa73b", Name: "ci", Org: "acme", Apps: []bourse.AppName{"shop"}, Machines: []bourse.MachineID{"148e21ea1d5389"}, ReadOnly: true,
			MadeBy: "admin", CreatedAt: made, ExpiresAt: at(time.Minute),
		},
		{ID: "3c6ef372fe94f82b", Name: "all", Org: "*", MadeBy: "*", CreatedAt: made, ReadOnly: true},
		{ID: "a54ff53a5f1d36f1", Name: "old", Org: "acme", CreatedAt: made, ExpiresAt: at(-time.Hour)},
		{ID: "510e527fade682d1", Name: "gone", Org: "acme", CreatedAt: made, RevokedAt: at(-time.Hour)},
	}
}

func TestTokenList(t *testing.T) {
	line.Screens(t, "token_list", clitest.Replies(http.StatusOK, machinesapi.TokenList{Tokens: some()}), "token", "list", "--all")
	got := line.Against(t, clitest.Replies(http.StatusOK, machinesapi.TokenList{Tokens: some()}), "token", "list")
	if strings.Contains(got.Out, "old") || strings.Contains(got.Out, "gone") || !strings.Contains(got.Out, "admin") {
		t.Errorf("unexpected tokens:\n%s", got.Out)
	}
}

func TestRevokeByName(t *testing.T) {
	for word, want := range map[string]string{
		"admin": "5be0cd19137e2179  revoked", "ci": "use an id, 6a09e667f3bcc908 or bb67ae8584caa73b", "old": "no valid token", "nosuch": "bourse token list",
	} {
		h := http.NewServeMux()
		h.Handle("GET /v1/tokens", clitest.Replies(http.StatusOK, machinesapi.TokenList{Tokens: some()}))
		h.Handle("DELETE /v1/tokens/5be0cd19137e2179", clitest.Replies(http.StatusOK, machinesapi.RevokedToken{OK: true, Revoked: []string{"5be0cd19137e2179"}}))
		if got := line.Against(t, h, "token", "revoke", word); !strings.Contains(got.Out+got.Err, want) {
			t.Errorf("%s: %+v, want %q", word, got, want)
		}
	}
}
