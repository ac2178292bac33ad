package flycompat

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// v1 returns a handler that responds like a broker with one app that has one machine. It appends each request to asked.
func v1(asked *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked != nil {
			*asked = append(*asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		}
		app := `{"id":"1","name":"shop","internal_numeric_id":7,"status":"deployed","organization":{"name":"acme","slug":"acme","internal_numeric_id":9}}`
		switch r.URL.Path {
		case "/v1/apps/shop":
			_, _ = io.WriteString(w, app)
		case "/v1/apps":
			_, _ = io.WriteString(w, `{"apps":[`+app+`],"total_apps":1}`)
		case "/v1/apps/shop/machines":
			_, _ = io.WriteString(w, `[{"id":"aaaaaa00000001","name":"web","state":"started","app":"shop"}]`)
		case "/v1/apps/broken":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"app not found","code":"not_found"}`)
		}
	})
}

func post(t testing.TB, asked *[]string, body string) (int, map[string]any) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer secret")
	rec := httptest.NewRecorder()
	Handler(v1(asked)).ServeHTTP(rec, req)
	var out map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		t.Fatalf("status %d: %v: %s", rec.Code, err, rec.Body)
	}
	return rec.Code, out
}

func ask(t testing.TB, query string, vars map[string]any) (int, map[string]any) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"query": query, "variables": vars})
	if err != nil {
		t.Fatal(err)
	}
	return post(t, nil, string(raw))
}

func TestQueries(t *testing.T) {
	for name, c := range map[string]struct {
		query string
		vars  map[string]any
		want  string // text that the reply must contain
	}{
		"an alias": {
			`query($n: String!) { appcompact: app(name: $n) { id internalNumericId organization { slug internalNumericId } } }`,
			map[string]any{"n": "shop"},
			`{"data":{"appcompact":{"id":"shop","internalNumericId":7,"organization":{"slug":"acme","internalNumericId":"9"}}}}`,
		},
		"no such app": {
			`{app(name: "none") {id}}`, nil,
			`{"data":{"app":null},"errors":[{"message":"Could not find App \"none\"","path":["app"],"extensions":{"code":"NOT_FOUND"}}]}`,
		},
		"one of two apps exists": {
			`{a: app(name: "none") {id} b: app(name: "shop") {id}}`, nil,
			`{"data":{"a":null,"b":{"id":"shop"}},"errors":[{"message":"Could not find App \"none\"","path":["a"],"extensions":{"code":"NOT_FOUND"}}]}`,
		},
		"fragments": {
			`query A { app(name: "shop") { ...F ...F ...on App { status } ... on Machine { state } ...Gone } } fragment F on App { id machines { nodes { id } } }`, nil,
			`{"data":{"app":{"id":"shop","status":"deployed","machines":{"nodes":[{"id":"aaaaaa00000001"}]}}}}`,
		},
		"fields that are named twice are merged": {
			`{app(name: "shop") {organization{id}} app(name: "shop") {organization{name}}}`, nil,
			`{"data":{"app":{"organization":{"id":"acme","name":"acme"}}}}`,
		},
		"directives": {
			`query($no: Boolean = false) { app(name: "shop") { id @include(if: $no) name @skip(if: $no) status @skip(if: true) } }`, nil,
			`{"data":{"app":{"name":"shop"}}}`,
		},
		"a field without a counterpart": {`{app(name: "shop") {id cheese {age}}}`, nil, `{"data":{"app":{"id":"shop","cheese":null}}}`},
		"an internal error is hidden":   {`{app(name: "broken") {id}}`, nil, `{"data":{"app":null},"errors":[{"message":"*","path":["app"],"extensions":{"code":"INTERNAL"}}]}`},
		"a role that no app has":        {`{apps(role: "postgres_cluster") {nodes {id}}}`, nil, `{"data":{"apps":{"nodes":[]}}}`},
		"pages":                         {`{apps(first: 1, after: "shop") {nodes {id} pageInfo {hasNextPage}}}`, nil, `{"data":{"apps":{"nodes":[],"pageInfo":{"hasNextPage":false}}}}`},
		"a name of the wrong type":      {`{app(name: 7) {id}}`, nil, `{"data":{"app":null},"errors":[{"message":"the query does not specify an app","path":["app"],"extensions":{"code":"INVALID"}}]}`},
		"bluegreen":                     {`{canPerformBluegreenDeployment(name: "shop")}`, nil, `{"data":{"canPerformBluegreenDeployment":true}}`},
		"WireGuard peers":               {`mutation {validateWireGuardPeers(peerIps: ["fdaa::1"]) {invalidPeerIps}}`, nil, `{"data":{"validateWireGuardPeers":{"invalidPeerIps":[]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			status, got := ask(t, c.query, c.vars)
			var want map[string]any
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.want, `"*"`) {
				got["errors"].([]any)[0].(map[string]any)["message"] = "*"
			}
			if diff := cmp.Diff(want, got); status != http.StatusOK || diff != "" {
				t.Errorf("status %d, -want +got:\n%s", status, diff)
			}
		})
	}
}

// TestHostileQueries checks that an expensive query is refused before it uses many resources.
func TestHostileQueries(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("{a", n) + strings.Repeat("}", n) }
	var aliases, chain strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&aliases, "a%d: app(name: \"x%d\") {id} ", i, i)
	}
	chain.WriteString(`{app(name: "shop") {...F0}}`)
	for i := range 60 { // each fragment selects twice as many fields as the previous one
		fmt.Fprintf(&chain, " fragment F%d on App {m: machines {nodes {app {...F%d}}} n: machines {nodes {app {...F%d}}}}", i, i+1, i+1)
	}
	for name, c := range map[string]struct {
		body   string
		status int
		text   string
	}{
		"not JSON":              {`{"query":`, 400, "not a GraphQL request"},
		"no body":               {``, 400, "not a GraphQL request"},
		"no query":              {`{"query":" "}`, 400, "has no query"},
		"a batch":               {` [{"query":"{viewer{id}}"}]`, 400, "one query at a time"},
		"not GraphQL":           {`{"query":"}{"}`, 400, "parse the query"},
		"no such operation":     {`{"query":"query A {viewer{id}}","operationName":"B"}`, 400, "no operation"},
		"a mutation":            {`{"query":"mutation {deleteApp(appId: \"shop\") {organization {id}}}"}`, 200, "Bourse does not support"},
		"a subscription":        {`{"query":"subscription {a}"}`, 400, "subscriptions are not supported"},
		"1 MB":                  {`{"query":"` + strings.Repeat("a", 1<<20) + `"}`, 400, "exceeds"},
		"many tokens":           {`{"query":"{` + strings.Repeat("a ", 100_000) + `}"}`, 400, "parse the query"},
		"deep":                  {`{"query":"` + deep(3000) + `"}`, 400, "parse the query"},
		"deep below an app":     {`{"query":"{app(name: \"shop\")` + strings.Repeat("{machines{nodes{app", 30) + strings.Repeat("}}}", 30) + `}"}`, 200, "*"},
		"aliases":               {`{"query":` + quote("{"+aliases.String()[:12_000]+"{id}}") + `}`, 400, "parse the query"},
		"many calls":            {`{"query":` + quote("{"+strings.Join(strings.SplitAfter(aliases.String(), "} ")[:300], "")+"}") + `}`, 200, "more than 50 calls"},
		"a fragment in itself":  {`{"query":"{app(name: \"shop\") {...F}} fragment F on App {id ...F}"}`, 200, ""},
		"fragments that double": {`{"query":` + quote(chain.String()) + `}`, 200, "*"},
		"a list of lists":       {`{"query":"{app(name: ` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `) {id}}"}`, 400, "parse the query"},
		"a path for a name":     {`{"query":"{app(name: \"../workers\") {id}}"}`, 200, "Could not find App"},
		"invalid UTF-8":         {"{\"query\":\"{app(name: \\\"\xff\\\") {id}}\"}", 200, "Could not find App"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out := post(t, nil, c.body)
			raw, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			if status != c.status || !strings.Contains(string(raw), strings.Trim(c.text, "*")) {
				t.Errorf("status %d, want %d with %q: %.300s", status, c.status, c.text, raw)
			}
			if len(raw) > 100_000 {
				t.Errorf("the reply is %d bytes long", len(raw))
			}
		})
	}
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// TestAppIsRequestedOnce checks that an app that is selected under several aliases is requested
// from /v1 only once, with the caller's credentials.
func TestAppIsRequestedOnce(t *testing.T) {
	var asked []string
	post(t, &asked, `{"query":"{a: app(name: \"shop\") {id} b: app(name: \"shop\") {name}}"}`)
	if diff := cmp.Diff([]string{"GET http://example.com/v1/apps/shop Bearer secret"}, asked); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzGraphQL(f *testing.F) {
	for _, seed := range []string{
		`{app(name: "shop") {id machines {nodes {id}}}}`, `query A($a: String = "shop", $b: [Int!]) {x: app(name: $a) @skip(if: false) {...F}} fragment F on App {id}`,
		`{a(b: {c: [1, 2.5, true, null, ENUM, """block"""]})}`, `mutation {a}`, "{\"\x00\"}", `{...{...{apps{edges{node{id}}}}}}`, `{apps(first: 99999999999999999999) {nodes {id}}}`,
	} {
		f.Add(seed, `{"a":"shop"}`)
	}
	f.Fuzz(func(t *testing.T, query, variables string) {
		var vars json.RawMessage
		if json.Valid([]byte(variables)) {
			vars = json.RawMessage(variables)
		}
		raw, err := json.Marshal(map[string]any{"query": query, "variables": vars})
		if err != nil {
			t.Skip()
		}
		status, out := post(t, nil, string(raw))
		if _, answered := out["data"]; status >= 500 || status == http.StatusOK && !answered {
			t.Fatalf("status %d: %v", status, out)
		}
	})
}

// FuzzLogToken checks that decoding and encoding a token yields the same positions.
func FuzzLogToken(f *testing.F) {
	f.Add("aaaaaa00000001=1.23,aaaaaa00000002=")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readToken(text)
		if err != nil {
			return
		}
		again, err := readToken(p.token())
		if err != nil || !cmp.Equal(p, again) {
			t.Fatalf("%q: %v became %v, %v", text, p, again, err)
		}
	})
}
