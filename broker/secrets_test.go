package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/superfly/fly-go/flaps"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi"
)

const secretsPath = "/v1/apps/shop/secrets"

// startSealing starts a broker that has a key for secrets, and creates app "shop".
func startSealing(t *testing.T, change ...func(*broker.Config)) (*setup, *fakeSecrets, *seal.Keys) {
	t.Helper()
	view := newFakeSecrets()
	seals, keys := sealing(view)
	s := start(t, append([]func(*broker.Config){seals}, change...)...)
	wantStatus(t, s.call(t, "POST", "/v1/apps", `{"name":"shop"}`), 201)
	return s, view, keys
}

func wantStatus(t *testing.T, rec *httptest.ResponseRecorder, want int) {
	t.Helper()
	if rec.Code != want {
		t.Fatalf("status %d, want %d: %s", rec.Code, want, rec.Body)
	}
}

func decode(t *testing.T, rec *httptest.ResponseRecorder, into any) {
	t.Helper()
	if err := json.Unmarshal(rec.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", rec.Body, err)
	}
}

func TestSecretsAreEncryptedAndNeverReturned(t *testing.T) {
	s, view, keys := startSealing(t)
	set := s.call(t, "POST", secretsPath, `{"values":{"PASSWORD":"hunter2","URL":"postgres://hunter2@db"}}`)
	wantStatus(t, set, 200)
	var first machinesapi.SecretList
	decode(t, set, &first)
	if len(first.Secrets) != 2 || first.Secrets[0].Name != "PASSWORD" || first.Secrets[0].Digest == "" || first.Secrets[0].CreatedAt.IsZero() || first.Version == 0 {
		t.Fatalf("set: %+v", first)
	}
	one := s.call(t, "GET", secretsPath+"/PASSWORD", "")
	list := s.call(t, "GET", secretsPath, "")
	wantStatus(t, one, 200)
	wantStatus(t, list, 200)
	wantStatus(t, s.call(t, "GET", secretsPath+"/NOSUCH", ""), 404)
	shown := s.call(t, "GET", secretsPath+"?show_secrets=true", "")
	wantStatus(t, shown, 400)
	for _, rec := range []interface{ String() string }{set.Body, one.Body, list.Body, shown.Body, s.log} {
		if strings.Contains(rec.String(), "hunter2") {
			t.Errorf("the value is returned: %s", rec)
		}
	}
	var app string
	for id := range view.of {
		app = id
	}
	stored := view.of[app]["PASSWORD"]
	if strings.Contains(string(stored.Sealed), "hunter2") {
		t.Error("the view contains the value in plain text")
	}
	if value, err := seal.Open(keys.OfApp(app), seal.Place{App: app, Name: "PASSWORD"}, stored.Sealed); err != nil || string(value) != "hunter2" {
		t.Errorf("decrypted as %q, %v", value, err)
	}
}

func TestSecretVersionsIncrease(t *testing.T) {
	s, _, _ := startSealing(t)
	last := uint64(0)
	grows := func(want bool, method, path, body string, status int) {
		t.Helper()
		rec := s.call(t, method, path, body)
		wantStatus(t, rec, status)
		var out machinesapi.SecretsVersion
		decode(t, rec, &out)
		if (out.Version > last) != want || out.Version < last {
			t.Fatalf("%s %s: version %d after %d, want an increase: %t", method, path, out.Version, last, want)
		}
		last = out.Version
	}
	// Clients use this call to determine the current version.
	grows(false, "DELETE", secretsPath+"/a-random-name-that-nobody-uses", "", 200)
	grows(true, "POST", secretsPath, `{"values":{"A":"1","B":"2"}}`, 200)
	grows(false, "DELETE", secretsPath+"/nosuch", "", 200)
	grows(false, "POST", secretsPath, `{"values":{"nosuch":null}}`, 200)
	grows(true, "POST", secretsPath+"/A", `{"value":""}`, 201)
	grows(true, "DELETE", secretsPath+"/A", "", 200)
	grows(true, "POST", secretsPath, `{"values":{"B":null,"C":"3"}}`, 200)
	grows(false, "GET", secretsPath+fmt.Sprintf("?version=%d", last), "", 200)
	wantStatus(t, s.call(t, "GET", secretsPath+fmt.Sprintf("?min_version=%d", last+1024), ""), 412)
	wantStatus(t, s.call(t, "GET", secretsPath+"?version=-1", ""), 400)
	var list machinesapi.SecretList
	decode(t, s.call(t, "GET", secretsPath, ""), &list)
	if len(list.Secrets) != 1 || list.Secrets[0].Name != "C" {
		t.Errorf("remaining: %+v", list.Secrets)
	}
}

// TestBrokersNeverReuseASecretVersion checks that, if two brokers with the same view change secrets at the same time,
// no version is used twice and each broker's versions increase.
func TestBrokersNeverReuseASecretVersion(t *testing.T) {
	view := newFakeSecrets()
	seals, _ := sealing(view)
	var mu sync.Mutex
	given := map[uint64]bool{}
	var group sync.WaitGroup
	for n := range 2 {
		s := start(t, seals, func(c *broker.Config) { c.Writer = seal.Writer(n) })
		for worker := range 4 {
			group.Go(func() {
				last := uint64(0)
				for i := range 10 {
					rec := s.call(t, "POST", "/v1/apps/default/secrets", fmt.Sprintf(`{"values":{"A%d":"%d"}}`, worker, i))
					var out machinesapi.SecretsVersion
					decode(t, rec, &out)
					mu.Lock()
					if given[out.Version] || out.Version <= last {
						t.Errorf("version %d again, or not after %d", out.Version, last)
					}
					given[out.Version] = true
					mu.Unlock()
					last = out.Version
				}
			})
		}
	}
	group.Wait()
}

func TestSecretsAreLimited(t *testing.T) {
	s, _, _ := startSealing(t, func(c *broker.Config) { c.Quotas = lookup.Quotas{App: lookup.Quota{Secrets: 2}} })
	for what, c := range map[string]struct {
		path, body string
		status     int
	}{
		"no values":            {secretsPath, `{}`, 400},
		"no object":            {secretsPath, `[]`, 400},
		"a number":             {secretsPath, `{"values":{"A":1}}`, 400},
		"a name with =":        {secretsPath, `{"values":{"A=B":"hunter2"}}`, 400},
		"a digit first":        {secretsPath, `{"values":{"1A":"hunter2"}}`, 400},
		"no name":              {secretsPath, `{"values":{"":"hunter2"}}`, 400},
		"a long name":          {secretsPath, `{"values":{"` + strings.Repeat("A", 129) + `":"hunter2"}}`, 400},
		"a zero byte":          {secretsPath, `{"values":{"A":"hunter2\u0000"}}`, 400},
		"a long value":         {secretsPath, `{"values":{"A":"hunter2` + strings.Repeat("x", 64<<10) + `"}}`, 400},
		"more than the quota":  {secretsPath, `{"values":{"A":"hunter2","B":"2","C":"3"}}`, 403},
		"one without a value":  {secretsPath + "/A", `{}`, 400},
		"another app":          {"/v1/apps/nosuch/secrets", `{"values":{"A":"hunter2"}}`, 404},
		"a name with a slash":  {secretsPath + "/A%2FB", `{"value":"hunter2"}`, 400},
		"two, as many as fit":  {secretsPath, `{"values":{"A":"hunter2","B":"2"}}`, 200},
		"a control character ": {secretsPath, `{"values":{"A\u001b[31m":"hunter2"}}`, 400},
	} {
		rec := s.call(t, "POST", c.path, c.body)
		if rec.Code != c.status || strings.Contains(rec.Body.String(), "hunter2") || strings.Contains(rec.Body.String(), "\x1b") {
			t.Errorf("%s: %d %s, want %d", what, rec.Code, rec.Body, c.status)
		}
	}
	if strings.Contains(s.log.String(), "hunter2") {
		t.Error("the log contains a value")
	}
	unable := start(t, func(c *broker.Config) { c.Secrets = newFakeSecrets() })
	if rec := unable.call(t, "POST", "/v1/apps/default/secrets", `{"values":{"A":"1"}}`); rec.Code != 412 || !strings.Contains(rec.Body.String(), "secrets.key") {
		t.Errorf("without a key: %d %s", rec.Code, rec.Body)
	}
}

// TestSecretsBelongToTheirApp checks that another tenant can neither read nor set an app's secrets,
// and that a new app with the name of a deleted one has none of its secrets.
func TestSecretsBelongToTheirApp(t *testing.T) {
	view := newFakeSecrets()
	seals, _ := sealing(view)
	s := start(t, seals, func(c *broker.Config) {
		c.Tokens = tokenMap{"ann": {Name: "acme", Org: "acme"}, "eve": {Name: "evil", Org: "evil"}}
	})
	wantStatus(t, s.call(t, "POST", "/v1/apps", `{"name":"vault","org_slug":"acme"}`, "Authorization", "Bearer ann"), 201)
	path := "/v1/apps/vault/secrets"
	wantStatus(t, s.call(t, "POST", path, `{"values":{"A":"hunter2"}}`, "Authorization", "Bearer ann"), 200)
	for _, c := range [][2]string{{"GET", path}, {"POST", path}, {"GET", path + "/A"}, {"POST", path + "/A"}, {"DELETE", path + "/A"}} {
		rec := s.call(t, c[0], c[1], `{"values":{"A":"1"},"value":"1"}`, "Authorization", "Bearer eve")
		if rec.Code != 403 || strings.Contains(rec.Body.String(), "digest") {
			t.Errorf("%s %s of another tenant's: %d %s", c[0], c[1], rec.Code, rec.Body)
		}
	}
	wantStatus(t, s.call(t, "DELETE", "/v1/apps/vault", "", "Authorization", "Bearer ann"), 202)
	if len(view.of) != 0 {
		t.Errorf("the view retains secrets of a deleted app: %v", view.of)
	}
	wantStatus(t, s.call(t, "POST", "/v1/apps", `{"name":"vault","org_slug":"evil"}`, "Authorization", "Bearer eve"), 201)
	var list machinesapi.SecretList
	decode(t, s.call(t, "GET", path, "", "Authorization", "Bearer eve"), &list)
	if len(list.Secrets) != 0 {
		t.Errorf("the next app with the name has secrets %+v", list)
	}
}

func TestFlyGoSecrets(t *testing.T) {
	seals, _ := sealing(newFakeSecrets())
	s := start(t, seals, func(c *broker.Config) { c.Tokens = tokensOf("secret", endpoint.Identity{Name: "ann"}) })
	client, ctx := flyClient(t, s, "secret"), t.Context()
	if _, err := client.CreateApp(ctx, flaps.CreateAppRequest{Name: "shop", Org: "personal"}); err != nil {
		t.Fatal(err)
	}
	first, err := client.UpdateAppSecrets(ctx, "shop", map[string]*string{"A": new("1"), "B": new("2")})
	if err != nil || len(first.Secrets) != 2 || first.Version == 0 {
		t.Fatalf("update: %+v, %v", first, err)
	}
	one, err := client.SetAppSecret(ctx, "shop", "A", "3")
	if err != nil || one.Name != "A" || one.Digest == "" || one.Version <= first.Version {
		t.Errorf("set: %+v, %v", one, err)
	}
	got, err := client.GetAppSecrets(ctx, "shop", "A", &one.Version, false)
	if err != nil || got.Digest != one.Digest || got.Value != nil || got.UpdatedAt == nil {
		t.Errorf("get: %+v, %v", got, err)
	}
	gone, err := client.DeleteAppSecret(ctx, "shop", "B")
	if err != nil || gone.Version <= one.Version {
		t.Errorf("delete: %+v, %v", gone, err)
	}
	if list, err := client.ListAppSecrets(ctx, "shop", &gone.Version, false); err != nil || len(list) != 1 || list[0].Name != "A" {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := client.ListAppSecrets(ctx, "shop", nil, true); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("list with values: %v", err)
	}
	if _, err := client.GetAppSecrets(ctx, "shop", "B", nil, false); err == nil {
		t.Error("a deleted secret exists")
	}
}

// TestOrdersHaveTheLatestSecrets checks that an order contains the latest known version of the secrets, even if the
// client requests an older one. If the client requests a machine without secrets, the order contains none.
func TestOrdersHaveTheLatestSecrets(t *testing.T) {
	s, view, _ := startSealing(t)
	place := func(more string) bourse.Options {
		t.Helper()
		wantStatus(t, s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+more+`}`), 200)
		return s.orders[len(s.orders)-1].Options
	}
	if o := place(""); o.Secrets != 0 {
		t.Errorf("an app without secrets: %+v", o)
	}
	var first, second machinesapi.SecretsVersion
	decode(t, s.call(t, "POST", secretsPath, `{"values":{"A":"1"}}`), &first)
	decode(t, s.call(t, "POST", secretsPath, `{"values":{"B":"2"}}`), &second)
	for _, least := range []uint64{0, 57, first.Version, second.Version} {
		if o := place(fmt.Sprintf(`,"min_secrets_version":%d`, least)); o.Secrets != second.Version || o.SkipSecrets {
			t.Errorf("at least %d: %+v, want %d", least, o, second.Version)
		}
	}
	if o := place(`,"skip_secrets":true`); o.Secrets != 0 || !o.SkipSecrets {
		t.Errorf("without secrets: %+v", o)
	}
	wantStatus(t, s.call(t, "POST", "/v1/apps/shop/machines", fmt.Sprintf(`{"config":%s,"min_secrets_version":%d}`, hostConfig, second.Version+1024)), 412)
	wantStatus(t, s.call(t, "POST", "/v1/apps/shop/machines", fmt.Sprintf(`{"config":{"image":"pull","init":{"exec":["x"]}},"min_secrets_version":%d}`, first.Version)), 400)
	view.mu.Lock()
	view.getErr = errors.New("the view's file is being recreated")
	view.mu.Unlock()
	if o := place(""); o.Secrets != 0 || o.SkipSecrets { // the worker uses its own view
		t.Errorf("while the view cannot be read: %+v", o)
	}
}

// TestWorkersReceiveTheirAppsKeys checks that every order, update, start and restart contains the
// keys of its app. With the keys, the worker can decrypt the app's secrets at later starts without
// a broker, including secrets that are set later. Requests for quotes and other calls must not
// contain keys.
func TestWorkersReceiveTheirAppsKeys(t *testing.T) {
	view := newFakeSecrets()
	seals, keys := sealing(view)
	s := start(t, seals)
	id := s.serving(t, nil)
	m := s.workers["w1"].machines[id]
	want := keys.OfApp(m.AppID)
	one := "/v1/apps/shop/machines/" + string(id)
	calls := func(w bourse.WorkerID) int { return len(s.workers[w].acts) }

	wantStatus(t, s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`), 200)
	placed := s.lastOrder(t)
	if !slices.Equal(placed.AppKeys, want) || placed.ForQuote().AppKeys != nil {
		t.Errorf("an order does not have the keys of its app, or a quote does")
	}
	wantStatus(t, s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`,"skip_secrets":true}`), 200)
	if len(s.lastOrder(t).AppKeys) != 0 {
		t.Error("an order without secrets has keys")
	}
	if _, err := s.broker.OrderFailover(t.Context(), id); err != nil || !slices.Equal(s.lastOrder(t).AppKeys, want) {
		t.Errorf("an order for a proxy does not have the keys: %v", err)
	}
	for _, c := range []struct {
		verb, body string
		keys       bourse.AppKeys
	}{{"/start", "", want}, {"/restart", "", want}, {"/stop", "{}", nil}, {"/cordon", "", nil}} {
		before := calls("w1")
		wantStatus(t, s.call(t, "POST", one+c.verb, c.body), 200)
		if acts := s.workers["w1"].acts; len(acts) != before+1 || !slices.Equal(acts[before].AppKeys, c.keys) {
			t.Errorf("%s: the call has wrong keys", c.verb)
		}
	}
	wantStatus(t, s.call(t, "POST", one, `{"config":`+hostConfig+`}`), 200)
	wantStatus(t, s.call(t, "POST", one, `{"config":`+hostConfig+`,"skip_secrets":true}`), 200)
	updates := s.workers["w1"].updates
	if len(updates) != 2 || !slices.Equal(updates[0].AppKeys, want) || len(updates[1].AppKeys) != 0 {
		t.Errorf("%d updates, or wrong keys", len(updates))
	}
	wantStatus(t, s.call(t, "POST", tasksPath, `{"image":"host","command":["wc","-c"],"payload":"12345"}`), 200)
	if o := s.lastOrder(t); o.Task == nil || !slices.Equal(o.AppKeys, want) {
		t.Error("a task with its own machine has no keys")
	}
	wantStatus(t, s.call(t, "POST", tasksPath, `{"task":"inc","payload":"text"}`), 200)
	if o := s.lastOrder(t); len(o.AppKeys) != 0 {
		t.Error("a task on a warm machine has keys")
	}
}
