package broker_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// tokenBook is an in-memory store of tokens that were created through the API.
type tokenBook struct {
	mu      sync.Mutex
	tokens  []inventory.Token
	changed chan struct{}
	young   bool
}

func (b *tokenBook) Tokens(context.Context) ([]inventory.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tokens), nil
}

func (b *tokenBook) Token(_ context.Context, id string) (*inventory.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.tokens, func(t inventory.Token) bool { return t.ID == id })
	if i < 0 {
		return nil, nil
	}
	found := b.tokens[i]
	return &found, nil
}

func (b *tokenBook) PutToken(_ context.Context, t *inventory.Token) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = append(slices.DeleteFunc(b.tokens, func(old inventory.Token) bool { return old.ID == t.ID }), *t)
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return nil
}

func (b *tokenBook) issued(now func() time.Time) *endpoint.Issued {
	return endpoint.NewIssued(b, b.changed, func() bool { return !b.young }, now)
}

// both accepts the tokens of a file as well as those that were created through the API.
type both struct {
	tokenMap
	*endpoint.Issued
}

func (b both) Identify(ctx context.Context, token string) (endpoint.Identity, error) {
	if who, ok := b.tokenMap[token]; ok {
		return who, nil
	}
	return b.Issued.Identify(ctx, token)
}

// issuing starts a broker that creates tokens. The tokens "root", "acme" and "shop" come from its
// file: root is valid for the whole cluster, acme for the organization acme, and shop for one app
// of acme. The apps shop and till belong to acme, and zoo belongs to another organization.
func issuing(t *testing.T, now *time.Time, change ...func(*broker.Config)) (*setup, *tokenBook) {
	book := &tokenBook{changed: make(chan struct{}, 1)}
	s := start(t, append(change, func(c *broker.Config) {
		if now != nil {
			c.Now = func() time.Time { return *now }
		} else {
			c.Now = time.Now
		}
		c.Issued = book.issued(c.Now)
		c.Tokens = both{tokenMap{
			"root": {Name: "*"}, "acme": {Name: "acme", Org: "acme"}, "shop": {Name: "acme", Org: "acme", Apps: []bourse.AppRef{{Name: "shop"}}},
		}, c.Issued}
	})...)
	s.app(t, "shop", "acme")
	s.app(t, "till", "acme")
	s.app(t, "zoo", "zoological")
	return s, book
}

// with sends a request with the given token.
func (s *setup) with(t *testing.T, token, method, path, body string) (int, []byte) {
	t.Helper()
	rec := s.call(t, method, path, body, "Authorization", "Bearer "+token)
	return rec.Code, rec.Body.Bytes()
}

// token creates a token with the token by.
func (s *setup) token(t *testing.T, by, body string) machinesapi.Token {
	t.Helper()
	status, reply := s.with(t, by, "POST", "/v1/tokens", body)
	if status != http.StatusCreated {
		t.Fatalf("create %s: status %d: %s", body, status, reply)
	}
	return decodeBody[machinesapi.Token](t, reply)
}

// created creates a machine of an app with the token for the whole cluster.
func (s *setup) created(t *testing.T, app string) machinesapi.Machine {
	t.Helper()
	_, reply := s.with(t, "root", "POST", "/v1/apps/"+app+"/machines", `{"config":`+hostConfig+`}`)
	return decodeBody[machinesapi.Machine](t, reply)
}

// TestTokenCannotExceedItsCreator checks that a token cannot be used to create a token with more permissions.
func TestTokenCannotExceedItsCreator(t *testing.T) {
	s, _ := issuing(t, nil)
	shop, till := s.created(t, "shop"), s.created(t, "till")
	of := func(body string) string {
		return strings.NewReplacer("MINE", string(shop.ID), "OTHER", string(till.ID)).Replace(body)
	}
	made := map[string]string{
		"made for acme": s.token(t, "acme", `{"name":"a"}`).Token,
		"made for shop": s.token(t, "acme", `{"apps":["shop"]}`).Token,
		"read-only":     s.token(t, "acme", `{"read_only":true}`).Token,
		"of a machine":  s.token(t, "acme", of(`{"apps":["shop"],"machines":["MINE"]}`)).Token,
		"whole cluster": s.token(t, "root", `{"org_slug":"*"}`).Token,
	}
	for _, c := range []struct {
		body string
		want map[string]int
	}{
		{`{"org_slug":"*"}`, map[string]int{"root": 201, "acme": 403, "shop": 403, "made for acme": 403, "made for shop": 403, "read-only": 403, "of a machine": 403, "whole cluster": 201}},
		{`{}`, map[string]int{"root": 400, "acme": 201, "shop": 201, "made for shop": 201, "read-only": 403, "of a machine": 403}},
		{`{"org_slug":"acme"}`, map[string]int{"root": 201, "acme": 201, "shop": 403, "made for shop": 403}},
		{`{"org_slug":"zoological"}`, map[string]int{"root": 201, "acme": 403, "shop": 403}},
		{`{"apps":["shop"]}`, map[string]int{"root": 201, "acme": 201, "shop": 201, "made for acme": 201, "made for shop": 201, "of a machine": 403}},
		{`{"apps":["till"]}`, map[string]int{"root": 201, "acme": 201, "shop": 403, "made for shop": 403}},
		{`{"apps":["zoo"]}`, map[string]int{"root": 201, "acme": 403, "shop": 403}},
		{`{"apps":["none"]}`, map[string]int{"root": 404, "acme": 404, "shop": 404}},
		{`{"apps":["shop","zoo"]}`, map[string]int{"root": 400, "acme": 403}},
		{`{"apps":["shop"],"org_slug":"zoological"}`, map[string]int{"root": 400, "acme": 400}},
		{`{"machines":["MINE"]}`, map[string]int{"root": 400, "acme": 400, "shop": 201}},
		{`{"apps":["shop","till"],"machines":["MINE"]}`, map[string]int{"root": 400}},
		{`{"apps":["shop"],"machines":["MINE","OTHER"]}`, map[string]int{"root": 404}},
		{`{"apps":["till"],"machines":["OTHER"]}`, map[string]int{"root": 201}},
		{`{"machines":["148e21ea1d5389"]}`, map[string]int{"shop": 404}},
		{`{"apps":["shop"],"machines":["web"]}`, map[string]int{"root": 400}},
		{`{"apps":["Shop"]}`, map[string]int{"root": 400}},
		{`{"apps":[""]}`, map[string]int{"root": 400}},
		{`{"org_slug":"ACME"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","expiry":"1h"}`, map[string]int{"root": 201}},
		{`{"org_slug":"acme","expiry":"-1h"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","expiry":1}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","expiry":"9223372036854775807ns"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","expiry":"soon"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","name":"` + strings.Repeat("a", 65) + `"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","name":"*"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","name":"a\u001b[31m"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","name":"a\u202eb"}`, map[string]int{"root": 400}},
		{`{"org_slug":"acme","name":"Bäcker 7"}`, map[string]int{"root": 201}},
		{`{"org_slug":7}`, map[string]int{"root": 400}},
		{`{"apps":"shop"}`, map[string]int{"root": 400}},
		{`[]`, map[string]int{"root": 400}},
		{``, map[string]int{"root": 400}},
	} {
		for by, want := range c.want {
			token := by
			if made[by] != "" {
				token = made[by]
			}
			if got, reply := s.with(t, token, "POST", "/v1/tokens", of(c.body)); got != want {
				t.Errorf("%s creates %s: status %d, want %d: %s", by, c.body, got, want, reply)
			}
		}
	}
}

// TestTokensExpireByTheBrokersClock checks that a token is invalid after its expiry, and cannot
// expire later than the token that was used to create it.
func TestTokensExpireByTheBrokersClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, _ := issuing(t, &now)
	hour := s.token(t, "acme", `{"expiry":"1h"}`)
	if want := now.Add(time.Hour); hour.ExpiresAt == nil || !hour.ExpiresAt.Equal(want) {
		t.Errorf("expires at %v, want %v", hour.ExpiresAt, want)
	}
	if status, reply := s.with(t, hour.Token, "POST", "/v1/tokens", `{"expiry":"2h"}`); status != 400 {
		t.Errorf("longer than its creator: status %d: %s", status, reply)
	}
	child := s.token(t, hour.Token, `{}`)
	if child.ExpiresAt == nil || !child.ExpiresAt.Equal(*hour.ExpiresAt) || child.MadeWith != hour.ID || child.MadeBy != "token" {
		t.Errorf("the token that it creates is %+v", child)
	}
	for _, token := range []string{hour.Token, child.Token} {
		if status, _ := s.with(t, token, "GET", "/v1/apps", ""); status != 200 {
			t.Errorf("before its expiry: status %d", status)
		}
	}
	now = now.Add(time.Hour)
	for _, token := range []string{hour.Token, child.Token} {
		status, reply := s.with(t, token, "GET", "/v1/apps", "")
		if status != 401 || !strings.Contains(string(reply), "Authenticate: token validation error: token ") || !strings.Contains(string(reply), "has expired") {
			t.Errorf("at its expiry: status %d: %s", status, reply)
		}
	}
}

// TestRevoke checks which tokens a caller can see and revoke, and what happens to the tokens created with a revoked
// token.
func TestRevoke(t *testing.T) {
	s, book := issuing(t, nil)
	admin := s.token(t, "acme", `{"name":"admin"}`)
	ci := s.token(t, admin.Token, `{"name":"ci","apps":["shop"]}`)
	job := s.token(t, ci.Token, `{"name":"job"}`)
	zoo := s.token(t, "root", `{"name":"zoo","org_slug":"zoological"}`)
	all := s.token(t, "root", `{"name":"all","org_slug":"*"}`)
	for by, want := range map[string]string{
		"root": "admin ci job zoo all", "acme": "admin ci job", "shop": "ci job", admin.Token: "admin ci job", ci.Token: "ci job", job.Token: "job", all.Token: "admin ci job zoo all",
	} {
		status, reply := s.with(t, by, "GET", "/v1/tokens", "")
		var got []string
		for _, one := range decodeBody[machinesapi.TokenList](t, reply).Tokens {
			got = append(got, one.Name)
			if one.Token != "" {
				t.Error("a list contains a token")
			}
		}
		if status != 200 || strings.Join(got, " ") != want {
			t.Errorf("%s sees %v, want %s", by, got, want)
		}
		if book.tokens[0].Digest != "" && strings.Contains(string(reply), book.tokens[0].Digest) {
			t.Error("a list contains a digest")
		}
	}
	revoke := func(by, id, query string, want int) machinesapi.RevokedToken {
		t.Helper()
		status, reply := s.with(t, by, "DELETE", "/v1/tokens/"+id+query, "")
		if status != want {
			t.Fatalf("status %d, want %d: %s", status, want, reply)
		}
		if want != 200 {
			return machinesapi.RevokedToken{}
		}
		return decodeBody[machinesapi.RevokedToken](t, reply)
	}
	revoke("acme", zoo.ID, "", 404)
	revoke(ci.Token, admin.ID, "", 404)
	revoke("acme", "0000000000000000", "", 404)
	revoke("acme", "..%2fx", "", 400)
	revoke("acme", strings.ToUpper(admin.ID)+"g", "", 400)
	revoke("acme", admin.ID, "?made=perhaps", 400)
	if got := revoke("acme", admin.ID, "", 200); !slices.Equal(got.Revoked, []string{admin.ID}) || !slices.Equal(got.StillValid, []string{ci.ID, job.ID}) {
		t.Errorf("revoked %+v", got)
	}
	if got := revoke("acme", admin.ID, "", 200); len(got.Revoked) != 0 || len(got.StillValid) != 2 {
		t.Errorf("again: %+v", got)
	}
	if status, reply := s.with(t, admin.Token, "GET", "/v1/apps", ""); status != 401 || !strings.Contains(string(reply), "was revoked") {
		t.Errorf("the revoked token is still valid: %d %s", status, reply)
	}
	if status, _ := s.with(t, ci.Token, "GET", "/v1/apps", ""); status != 200 {
		t.Errorf("the token created with the revoked token is invalid, too: %d", status)
	}
	if got := revoke("acme", admin.ID, "?made=true", 200); len(got.Revoked) != 2 || len(got.StillValid) != 0 {
		t.Errorf("with the tokens created with it: %+v", got)
	}
	for _, token := range []string{ci.Token, job.Token} {
		if status, _ := s.with(t, token, "GET", "/v1/apps", ""); status != 401 {
			t.Errorf("the token created with the revoked token is still valid: %d", status)
		}
	}
}

// TestMachineToken checks that a machine token can only be used to see and change its machines, and
// that lists contain no other machines.
func TestMachineToken(t *testing.T) {
	s, _ := issuing(t, nil)
	mine, other, till := s.created(t, "shop"), s.created(t, "shop"), s.created(t, "till")
	token := s.token(t, "acme", `{"apps":["shop"],"machines":["`+string(mine.ID)+`"]}`).Token
	reads := s.token(t, "acme", `{"apps":["shop"],"machines":["`+string(mine.ID)+`"],"read_only":true}`).Token
	for _, path := range []string{"/v1/machines", "/v1/apps/shop/machines", "/v1/apps/shop/machines?include_deleted=true"} {
		_, reply := s.with(t, token, "GET", path, "")
		if list := decodeBody[[]machinesapi.Machine](t, reply); len(list) != 1 || list[0].ID != mine.ID {
			t.Errorf("%s lists %s", path, reply)
		}
	}
	for _, c := range []struct {
		token, method, path string
		want                int
	}{
		{token, "GET", "/v1/apps/shop/machines/" + string(mine.ID), 200},
		{token, "POST", "/v1/apps/shop/machines/" + string(mine.ID) + "/stop", 200},
		{token, "GET", "/v1/apps/shop/machines/" + string(other.ID), 403},
		{token, "GET", "/v1/apps/shop/machines/00000000000000", 403},
		{token, "GET", "/v1/apps/till/machines/" + string(till.ID), 403},
		{token, "GET", "/v1/apps/till/machines/" + string(mine.ID), 403},
		{token, "GET", "/v1/apps/none/machines/" + string(mine.ID), 404},
		{token, "GET", "/v1/apps/shop", 200},
		{token, "GET", "/v1/apps/shop/volumes", 403},
		{token, "POST", "/v1/apps/shop/machines", 403},
		{token, "DELETE", "/v1/apps/shop", 403},
		{reads, "GET", "/v1/apps/shop/machines/" + string(mine.ID) + "/logs", 200},
		{reads, "POST", "/v1/apps/shop/machines/" + string(mine.ID) + "/stop", 403},
		{reads, "POST", "/v1/apps/shop/machines/" + string(mine.ID) + "/exec", 403},
		{reads, "POST", "/v1/apps/shop/machines/" + string(mine.ID) + "/tunnel?port=1", 403},
		{reads, "POST", "/v1/apps/none/machines/" + string(mine.ID) + "/exec", 404},
		{reads, "PATCH", "/v1/apps/shop/machines/" + string(mine.ID), 405},
	} {
		if status, reply := s.with(t, c.token, c.method, c.path, ""); status != c.want {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, status, c.want, reply)
		}
	}
	_, reply := s.with(t, reads, "GET", "/v1/tokens/current", "")
	if now := decodeBody[machinesapi.CurrentTokens](t, reply).Tokens; len(now) != 1 || now[0].Restricted != string(mine.ID) || now[0].Org != "acme" || !now[0].ReadOnly {
		t.Errorf("it is described as %s", reply)
	}
}

// TestNewBrokerRejectsNoToken checks that a broker that does not have all tokens yet does not reject a token as
// unknown. A token from the file is valid immediately.
func TestNewBrokerRejectsNoToken(t *testing.T) {
	s, book := issuing(t, nil)
	token := endpoint.NewToken()
	if status, _ := s.with(t, token, "GET", "/v1/apps", ""); status != 401 {
		t.Errorf("unknown: status %d", status)
	}
	book.young = true
	if status, _ := s.with(t, token, "GET", "/v1/apps", ""); status != 503 {
		t.Errorf("a token that has not arrived: status %d", status)
	}
	if status, _ := s.with(t, "acme", "GET", "/v1/apps", ""); status != 200 {
		t.Errorf("a token from the file: status %d", status)
	}
}

func TestDeployToken(t *testing.T) {
	s, _ := issuing(t, nil)
	status, reply := s.with(t, "acme", "POST", "/v1/apps/shop/deploy_token", `{"expiry":"175200h"}`) // clients send the expiry in this form
	token := decodeBody[machinesapi.NewDeployToken](t, reply).Token
	if status != 200 || token == "" {
		t.Fatalf("status %d: %s", status, reply)
	}
	for path, want := range map[string]int{"/v1/apps/shop": 200, "/v1/apps/till": 403, "/v1/workers": 403} {
		if status, _ := s.with(t, token, "GET", path, ""); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
}

// TestTokensAreLimited checks that the number of an organization's tokens in the view is limited.
func TestTokensAreLimited(t *testing.T) {
	s, book := issuing(t, nil)
	for range 1000 {
		book.tokens = append(book.tokens, inventory.Token{ID: endpoint.NewToken(), Org: "acme"})
	}
	if status, reply := s.with(t, "acme", "POST", "/v1/tokens", `{}`); status != 403 || !strings.Contains(string(reply), "quota exceeded") {
		t.Errorf("status %d: %s", status, reply)
	}
	if status, _ := s.with(t, "root", "POST", "/v1/tokens", `{"org_slug":"zoological"}`); status != 201 {
		t.Errorf("another organization: status %d", status)
	}
	for i := range book.tokens {
		book.tokens[i].RevokedAt = time.Now()
	}
	if status, _ := s.with(t, "acme", "POST", "/v1/tokens", `{}`); status != 201 {
		t.Errorf("after the tokens were revoked: status %d", status)
	}
}
