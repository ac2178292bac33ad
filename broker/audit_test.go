package broker_test

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
)

// TestChangesAreAudited checks that each change adds one line to the log, whether it succeeds or
// not. The line contains the caller, the token's ID, the operation, the object and the result, but
// never a token itself.
func TestChangesAreAudited(t *testing.T) {
	s, _ := issuing(t, nil)
	ci := s.token(t, "acme", `{"name":"ci","apps":["shop"]}`)
	reads := s.token(t, "acme", `{"name":"dash","read_only":true}`)
	s.log.Reset()
	long := strings.Repeat("x", 10_000)
	for _, c := range []struct {
		token, method, path, body string
		want                      map[string]string // expected attributes of the line; empty: no line is expected
	}{
		{ci.Token, "GET", "/v1/apps", "", nil},
		{ci.Token, "GET", "/v1/apps/zoo", "", nil},
		{ci.Token, "POST", "/v1/apps/shop/machines", `{"config":` + hostConfig + `}`, map[string]string{"who": "ci", "with": ci.ID, "app": "shop", "outcome": "done"}},
		{ci.Token, "POST", "/v1/apps/zoo/machines", `{}`, map[string]string{"who": "ci", "with": ci.ID, "app": "zoo", "outcome": "refused", "code": "forbidden"}},
		{reads.Token, "DELETE", "/v1/apps/shop", "", map[string]string{"who": "dash", "with": reads.ID, "app": "shop", "outcome": "refused"}},
		{"acme", "POST", "/v1/apps", `{"name":"new"}`, map[string]string{"who": "acme", "app": "new", "outcome": "done"}},
		{"wrong", "POST", "/v1/apps/shop/machines", `{}`, map[string]string{"app": "shop", "outcome": "refused", "code": "unauthorized"}},
		{"acme", "POST", "/v1/tokens", `{"name":"next"}`, map[string]string{"who": "acme", "name": "next", "org": "acme", "outcome": "done"}},
		{"acme", "DELETE", "/v1/tokens/" + ci.ID, "", map[string]string{"who": "acme", "token": ci.ID, "outcome": "done"}},
		{"acme", "DELETE", "/v1/apps/" + long, "", map[string]string{"who": "", "app": long[:128], "outcome": "refused"}},
	} {
		s.with(t, c.token, c.method, c.path, c.body)
		lines := bufio.NewScanner(strings.NewReader(s.log.String()))
		lines.Buffer(nil, 1<<20)
		found := 0
		for lines.Scan() {
			var line map[string]any
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if line["audit"] != true {
				continue
			}
			found++
			for key, want := range c.want {
				if got, _ := line[key].(string); got != want {
					t.Errorf("%s %.60s: %s is %q, want %q: %.300s", c.method, c.path, key, got, want, lines.Text())
				}
			}
			if line["from"] == "" || line["request"] == "" || line["endpoint"] == "" {
				t.Errorf("the line is incomplete: %s", lines.Text())
			}
		}
		if want := min(1, len(c.want)); found != want {
			t.Errorf("%s %.60s: %d lines, want %d", c.method, c.path, found, want)
		}
		if text := s.log.String(); strings.Contains(text, "bourse_") || strings.Contains(text, c.token+" ") || len(text) > 2000 {
			t.Errorf("%s %.60s logs %s", c.method, c.path, text)
		}
		s.log.Reset()
	}
}
