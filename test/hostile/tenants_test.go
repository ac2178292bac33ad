package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// Tokens of the broker in these tests.
const (
	acmeToken  = "a-token-of-all-of-acme"
	rivalToken = "a-token-of-all-of-rival"
	shopToken  = "a-token-of-acmes-shop"
	blogToken  = "a-token-of-acmes-blog"
)

// canary is a text in all of acme's private data. It must not appear in replies to other organizations.
const canary = "canary-of-acme"

// tenants is a broker and a worker with two organizations, and the objects of organization
// acme.
type tenants struct {
	t             *testing.T
	broker        *servertest.Server
	http          *http.Client
	machine       string // id of acme's machine
	instance      string
	order, nonce  string
	volume        string // id of acme's volume; "" if the worker supports no volumes
	snapshot      string
	reservation   string
	seen, refused int
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	text := fmt.Sprintf("%s acme\n%s rival\n%s acme shop\n%s acme blog\n%s *\n", acmeToken, rivalToken, shopToken, blogToken, operatorToken)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &tenants{t: t}
	c.broker = servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(file))
	c.http = c.broker.HTTP(t)
	servertest.Start(t, "w1",
		"serve", "worker", "--region", "gru", "--name", "w1", "--data", filepath.Join(t.TempDir(), "w1"),
		"--cpus", "4", "--memory", "4GiB", "--ephemeral", "--join", c.broker.Addr)
	if !servertest.Within(servertest.Timeout, func() bool {
		status, body, _ := c.ask(operatorToken, "GET", "/v1/workers", "")
		return status == http.StatusOK && strings.Contains(body, `"w1"`)
	}) {
		t.Fatal("the broker does not know its worker")
	}
	return c
}

// ask sends a request with a token.
func (c *tenants) ask(token, method, path, body string, header ...string) (int, string, http.Header) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.broker.API+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// must sends a request that must succeed. It returns the object in the reply, and the
// reply's header.
func (c *tenants) must(token, method, path, body string) (map[string]any, http.Header) {
	c.t.Helper()
	status, text, h := c.ask(token, method, path, body)
	if status/100 != 2 {
		c.t.Fatalf("%s %s: status %d, want 2xx: %s", method, path, status, text)
	}
	var out map[string]any
	_ = json.Unmarshal([]byte(text), &out) // ignore errors: some replies contain a list or nothing
	return out, h
}

// no sends a request that must be refused with one of the given statuses. The reply must
// not contain any of acme's data.
func (c *tenants) no(token, method, path, body string, want []int) {
	c.t.Helper()
	status, text, h := c.ask(token, method, path, body)
	ok := false
	for _, w := range want {
		ok = ok || w == status
	}
	if !ok {
		c.t.Errorf("%s %s %s with %s: status %d, want one of %v: %s", method, path, body, token, status, want, text)
	}
	c.seen++
	if status >= http.StatusBadRequest {
		c.refused++
	}
	c.clean(method+" "+path, text, h)
}

// clean checks that a reply contains none of acme's data.
func (c *tenants) clean(what, text string, h http.Header) {
	c.t.Helper()
	for _, secret := range []string{canary, c.nonce, c.instance} {
		if secret != "" && (strings.Contains(text, secret) || strings.Contains(fmt.Sprint(h), secret)) {
			c.t.Errorf("%s: the reply contains another organization's %q: %s", what, secret, text)
		}
	}
}

// program returns the body of a request for a machine that prints canaries and contains
// them in all of its properties.
func program(name string) string {
	return fmt.Sprintf(`{"name": %q, "region": "gru", "config": {"image": "host", "guest": {"memory_mb": 64}, "restart": {"policy": "no"},
		"env": {"SECRET": %q}, "metadata": {"key": %q}, "init": {"exec": ["sh", "-c", "echo $SECRET; exec sleep 1000"]}}}`, name, canary, canary)
}

// settle creates acme's objects in an app: a machine with a lease, a reservation and, if
// the host supports it, a volume with a snapshot.
func (c *tenants) settle(app string) {
	c.t.Helper()
	c.must(acmeToken, "POST", "/v1/apps", `{"app_name": "`+app+`", "org_slug": "acme"}`)
	m, h := c.must(acmeToken, "POST", "/v1/apps/"+app+"/machines", program(canary+"-machine"))
	c.machine, c.instance, c.order = m["id"].(string), m["instance_id"].(string), h.Get("Bourse-Order-Id")
	lease, _ := c.must(acmeToken, "POST", c.path(app)+"/lease", `{"ttl": 600, "description": "`+canary+`"}`)
	c.nonce = lease["data"].(map[string]any)["nonce"].(string)
	r, _ := c.must(acmeToken, "POST", "/v1/reservations",
		`{"ttl_seconds": 600, "orders": [{"app": "`+app+`", "region": "gru", "config": {"guest": {"memory_mb": 64}}}]}`)
	c.reservation = r["id"].(string)
	status, text, _ := c.ask(acmeToken, "POST", "/v1/apps/"+app+"/volumes", `{"name": "canary_of_acme", "region": "gru", "size_gb": 1}`)
	if status/100 != 2 {
		c.t.Logf("this host does not support volumes: %d %s", status, text)
		return
	}
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		c.t.Fatal(err)
	}
	c.volume = v.ID
	c.must(acmeToken, "POST", "/v1/apps/"+app+"/volumes/"+v.ID+"/snapshots", "")
	_, text, _ = c.ask(acmeToken, "GET", "/v1/apps/"+app+"/volumes/"+v.ID+"/snapshots", "")
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 {
		c.t.Fatalf("the snapshots are %s, %v; want at least one", text, err)
	}
	c.snapshot = list[0].ID
}

// path returns the path of acme's machine below another app.
func (c *tenants) path(app string) string { return "/v1/apps/" + app + "/machines/" + c.machine }

// calls maps requests for one machine to valid bodies.
var calls = map[string]string{
	"GET ":                              "",
	"DELETE ":                           "",
	"DELETE ?force=true":                "",
	"POST /start":                       "",
	"POST /stop":                        "{}",
	"POST /restart":                     "",
	"POST /signal":                      `{"signal": "SIGKILL"}`,
	"POST /cordon":                      "",
	"POST /uncordon":                    "",
	"POST /exec":                        `{"command": ["sh", "-c", "echo $SECRET"], "timeout": 5}`,
	"POST /exec/stream":                 "",
	"POST /tunnel?port=80":              "",
	"GET /wait?state=stopped&timeout=1": "",
	"GET /wait?state=started&timeout=1": "",
	"GET /events":                       "",
	"GET /logs":                         "",
	"GET /logs?follow=1":                "",
	"GET /usage":                        "",
	"GET /lease":                        "",
	"POST /lease":                       `{"ttl": 60}`,
	"DELETE /lease":                     "",
	"GET /metadata":                     "",
	"PUT /metadata":                     `{"metadata": {"a": "b"}}`,
	"PATCH /metadata":                   `{"metadata": {"a": "b"}}`,
	"GET /metadata/key":                 "",
	"POST /metadata/key":                `{"value": "x"}`,
	"DELETE /metadata/key":              "",
}

// try sends every request for acme's machine and volume through the path of an app. They
// must be refused with one of the given statuses.
func (c *tenants) try(token, app string, want ...int) {
	c.t.Helper()
	for call, body := range calls {
		method, rest, _ := strings.Cut(call, " ")
		c.no(token, method, c.path(app)+rest, body, want)
		if c.nonce != "" { // knowing the nonce of the machine's lease must not help
			status, text, _ := c.ask(token, method, c.path(app)+rest, body, "fly-machine-lease-nonce", c.nonce)
			if status < http.StatusBadRequest || strings.Contains(text, canary) {
				c.t.Errorf("%s with the nonce: status %d, want a refusal without acme's data: %s", call, status, text)
			}
		}
	}
	if c.volume == "" {
		return
	}
	volume := "/v1/apps/" + app + "/volumes/" + c.volume
	for call, body := range map[string]string{
		"GET ": "", "DELETE ": "", "PUT ": `{"snapshot_retention": 1}`, "PUT /extend": `{"size_gb": 2}`, "GET /snapshots": "", "POST /snapshots": "",
	} {
		method, rest, _ := strings.Cut(call, " ")
		c.no(token, method, volume+rest, body, want)
	}
}

// intact fails the test unless all of acme's objects still exist.
func (c *tenants) intact(app string) {
	c.t.Helper()
	m, _ := c.must(acmeToken, "GET", c.path(app), "")
	if m["state"] != "started" || m["instance_id"] != c.instance || m["nonce"] == "" {
		c.t.Errorf("acme's machine is %v, want it started, with instance %s and its lease", m, c.instance)
	}
	config := m["config"].(map[string]any)
	if !maps.Equal(map[string]any{"key": canary}, config["metadata"].(map[string]any)) {
		c.t.Errorf("the metadata of acme's machine is %v, want only key=%s", config["metadata"], canary)
	}
	if r, _ := c.must(acmeToken, "GET", "/v1/reservations/"+c.reservation, ""); len(r["holds"].([]any)) != 1 {
		c.t.Errorf("acme's reservation is %v, want one hold", r)
	}
	if lease, _ := c.must(acmeToken, "GET", c.path(app)+"/lease", ""); !strings.Contains(fmt.Sprint(lease), canary) {
		c.t.Errorf("acme's lease is %v, want a description with %q", lease, canary)
	}
	if c.volume != "" {
		c.must(acmeToken, "GET", "/v1/apps/"+app+"/volumes/"+c.volume, "")
	}
}

// TestOtherOrganizationsHaveNoAccess checks that another organization cannot access acme's objects: neither through
// acme's app, nor through its own app with the ids of acme's machines, orders, volumes and reservations, nor with lists
// or SQL.
func TestOtherOrganizationsHaveNoAccess(t *testing.T) {
	c := startTenants(t)
	c.settle("shop")
	c.must(rivalToken, "POST", "/v1/apps", `{"app_name": "theirs", "org_slug": "rival"}`)
	c.try(rivalToken, "shop", http.StatusForbidden)
	c.try(rivalToken, "theirs", http.StatusNotFound)
	c.try(rivalToken, "nowhere", http.StatusNotFound)
	const shop, theirs = "/v1/apps/shop", "/v1/apps/theirs"
	forbidden, notFound := []int{http.StatusForbidden}, []int{http.StatusNotFound}
	for _, call := range []string{
		"GET ", "DELETE ", "DELETE ?force=true", "GET /machines", "GET /machines?include_deleted=true", "POST /machines", "POST /quotes", "POST /tasks",
		"GET /volumes", "POST /volumes",
	} {
		method, rest, _ := strings.Cut(call, " ")
		c.no(rivalToken, method, shop+rest, program("x"), forbidden)
	}
	for _, call := range []string{
		"GET /v1/workers", "GET /v1/workers/w1", "GET /v1/workers/w1/runs?ended=true", "GET /v1/images", "POST /v1/images/prune", "GET /v1/view/health",
	} {
		method, path, _ := strings.Cut(call, " ")
		c.no(rivalToken, method, path, "", forbidden)
	}
	for _, path := range []string{"/v1/view/queries", "/v1/view/subscriptions"} {
		c.no(rivalToken, "POST", path, `{"sql": "SELECT * FROM machines"}`, forbidden)
	}
	c.no(rivalToken, "GET", "/v1/orgs/acme/volumes", "", []int{http.StatusOK, http.StatusForbidden})
	for _, path := range []string{"/v1/apps", "/v1/apps?org_slug=acme", "/v1/apps?org_slug=rival"} {
		status, text, h := c.ask(rivalToken, "GET", path, "")
		if status == http.StatusOK && strings.Contains(text, `"shop"`) {
			t.Errorf("%s reveals acme's app: %s", path, text)
		}
		c.clean(path, text, h)
	}
	for _, body := range []string{`{"app_name": "shop", "org_slug": "rival"}`, `{"app_name": "shop", "org_slug": "acme"}`, `{"app_name": "more", "org_slug": "acme"}`} {
		c.no(rivalToken, "POST", "/v1/apps", body, []int{http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity})
	}

	c.no(rivalToken, "GET", "/v1/orders/"+c.order, "", notFound)
	c.no(rivalToken, "GET", "/v1/orders/"+c.order+"?app=theirs", "", notFound)
	c.no(rivalToken, "GET", "/v1/orders/"+c.order+"?app=shop", "", []int{http.StatusForbidden, http.StatusNotFound})
	reservation := "/v1/reservations/" + c.reservation
	c.no(rivalToken, "GET", reservation, "", notFound)
	c.no(rivalToken, "PATCH", reservation, `{"ttl_seconds": 1}`, notFound)
	c.no(rivalToken, "DELETE", reservation, "", notFound)
	c.no(rivalToken, "POST", "/v1/reservations", `{"orders": [{"app": "shop", "region": "gru", "config": {"guest": {"memory_mb": 64}}}]}`, forbidden)

	own := `{"region": "gru", "config": {"image": "host", "guest": {"memory_mb": 64}, "restart": {"policy": "no"}, "init": {"exec": ["sleep", "1000"]}%s}%s}`
	for _, id := range []string{c.order, c.order[:26]} {
		status, text, h := c.ask(rivalToken, "POST", theirs+"/machines", fmt.Sprintf(own, "", ""), "Bourse-Order-Id", id)
		if strings.Contains(text, c.machine) {
			t.Errorf("acme's order id returned acme's machine: %d %s", status, text)
		}
		c.clean("an order with acme's id", text, h)
	}
	c.no(rivalToken, "POST", theirs+"/machines", fmt.Sprintf(own, "", `, "reservation": "`+c.reservation+`"`),
		[]int{http.StatusNotFound, http.StatusPreconditionFailed, http.StatusUnprocessableEntity, http.StatusConflict})
	if c.volume != "" {
		mount := `, "mounts": [{"volume": "` + c.volume + `", "path": "/data"}]`
		none := []int{http.StatusNotFound, http.StatusPreconditionFailed, http.StatusBadRequest, http.StatusUnprocessableEntity}
		c.no(rivalToken, "POST", theirs+"/machines", fmt.Sprintf(own, mount, ""), none)
		c.no(rivalToken, "POST", theirs+"/volumes", `{"name": "mine", "region": "gru", "source_volume_id": "`+c.volume+`"}`, none)
		c.no(rivalToken, "POST", theirs+"/volumes", `{"name": "mine", "region": "gru", "snapshot_id": "`+c.snapshot+`"}`, none)
	}
	for _, token := range []string{"", "Bearer", acmeToken + "x", acmeToken[:16]} {
		c.no(token, "GET", c.path("shop"), "", []int{http.StatusUnauthorized})
	}
	if c.seen < 100 || c.refused < c.seen-3 {
		t.Errorf("%d of %d requests were refused, want all except at most 3, of at least 100", c.refused, c.seen)
	}
	c.intact("shop")
}

// TestAppTokenGivesNoAccessToOtherApps checks that a token for one app does not permit access to other apps of the same
// organization.
func TestAppTokenGivesNoAccessToOtherApps(t *testing.T) {
	c := startTenants(t)
	c.must(acmeToken, "POST", "/v1/apps", `{"app_name": "blog", "org_slug": "acme"}`)
	c.settle("shop")
	if m, _ := c.must(shopToken, "GET", c.path("shop"), ""); m["id"] != c.machine {
		t.Errorf("the app's own token got %v, want machine %s", m, c.machine)
	}
	c.try(blogToken, "shop", http.StatusForbidden)
	c.try(blogToken, "blog", http.StatusNotFound)
	c.no(blogToken, "GET", "/v1/apps/shop/machines?include_deleted=true", "", []int{http.StatusForbidden})
	c.no(blogToken, "DELETE", "/v1/apps/shop?force=true", "", []int{http.StatusForbidden})
	c.no(blogToken, "GET", "/v1/orders/"+c.order, "", []int{http.StatusNotFound})
	c.no(blogToken, "DELETE", "/v1/reservations/"+c.reservation, "", []int{http.StatusNotFound})
	c.no(blogToken, "POST", "/v1/apps", `{"app_name": "third", "org_slug": "acme"}`, []int{http.StatusForbidden})
	c.no(blogToken, "POST", "/v1/view/queries", `{"sql": "SELECT * FROM machines"}`, []int{http.StatusForbidden})
	c.intact("shop")
}

// TestRecreatedAppDoesNotGetObjectsOfTheDeletedApp checks that if another organization creates an app with the name of a
// deleted app, it gets none of the deleted app's objects.
func TestRecreatedAppDoesNotGetObjectsOfTheDeletedApp(t *testing.T) {
	c := startTenants(t)
	c.settle("shop")
	c.must(acmeToken, "DELETE", "/v1/apps/shop?force=true", "")
	c.must(rivalToken, "POST", "/v1/apps", `{"app_name": "shop", "org_slug": "rival"}`)
	c.nonce = "" // the lease was removed together with the machine
	c.try(rivalToken, "shop", http.StatusNotFound)
	for _, path := range []string{
		"/v1/apps/shop/machines", "/v1/apps/shop/machines?include_deleted=true", "/v1/apps/shop/volumes", "/v1/orgs/rival/volumes", "/v1/apps/shop", "/v1/apps",
	} {
		status, text, h := c.ask(rivalToken, "GET", path, "")
		if status != http.StatusOK || strings.Contains(text, c.machine) || c.volume != "" && strings.Contains(text, c.volume) {
			t.Errorf("GET %s: status %d, want 200 without acme's objects: %s", path, status, text)
		}
		c.clean(path, text, h)
	}
	c.no(rivalToken, "GET", "/v1/orders/"+c.order, "", []int{http.StatusNotFound})
	c.no(rivalToken, "GET", "/v1/orders/"+c.order+"?app=shop", "", []int{http.StatusNotFound})
	c.no(rivalToken, "GET", "/v1/reservations/"+c.reservation, "", []int{http.StatusNotFound})
}
