package broker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestRepliesWarn checks that a reply lists the request's ignored fields in its body and headers.
// Unknown fields must become a part of the order, and must be returned.
func TestRepliesWarn(t *testing.T) {
	s := start(t)
	const body = `{"region":"gru","config":{"image":"host","init":{"exec":["true"],"swap_size_mb":512},"services":[{"internal_port":80,"autostop":"stop"}],"co\u000alor":"red"}}`
	rec := s.call(t, "POST", createPath, body)
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	m := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
	want := []bourse.Warning{
		{Field: `config."co\nlor"`, Message: "unknown to Bourse: stored and returned, but without effect"},
		{Field: "config.init.swap_size_mb", Message: "stored and returned, but without effect: a machine has no swap: memory_mb is its total memory"},
		{Field: "config.services[0].ports", Message: "no service has ports: the machine is stopped unless it keeps itself awake, and no request starts it again"},
	}
	if diff := cmp.Diff(want, m.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got := rec.Header()[machinesapi.HeaderWarning]; len(got) != 3 || got[1] != want[1].String() || strings.ContainsAny(strings.Join(got, ""), "\r\n") {
		t.Errorf("headers %q", got)
	}
	if got := string(m.Config.Rest); got != `{"co\nlor":"red","init":{"swap_size_mb":512}}` {
		t.Errorf("returned: %s", got)
	}
	if got := s.lastOrder(t).Config.Rest; string(got) != string(m.Config.Rest) {
		t.Errorf("ordered: %s", got)
	}
	rec = s.call(t, "POST", "/v1/apps/default/quotes", body)
	quoted := decodeBody[machinesapi.QuoteReply](t, rec.Body.Bytes())
	if diff := cmp.Diff(want, quoted.Warnings); diff != "" || len(rec.Header()[machinesapi.HeaderWarning]) != 3 || quoted.Outcome == "" {
		t.Errorf("quoted %s %s", rec.Body, diff)
	}
}

// TestStandbys checks that a standby is created without being started, and that it can back up only
// machines of its own app.
func TestStandbys(t *testing.T) {
	s := start(t)
	m := decodeBody[machinesapi.Machine](t, s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`).Body.Bytes())
	spare := `{"config":{"image":"host","init":{"exec":["run"]},"standbys":["` + string(m.ID) + `"]`
	for _, more := range []string{`}}`, `,"services":[{"internal_port":80,"autostart":true}]}}`} { // requests do not start the standby
		if rec := s.call(t, "POST", createPath, spare+more); rec.Code != http.StatusOK || !s.lastOrder(t).SkipLaunch {
			t.Errorf("%d %s, the order skips its launch: %t", rec.Code, rec.Body, s.lastOrder(t).SkipLaunch)
		}
	}
	s.call(t, "POST", "/v1/apps", `{"app_name":"other","org_slug":"personal"}`)
	for body, want := range map[string]string{
		`{"config":{"image":"host","init":{"exec":["run"]},"standbys":["000001ff000000"]}}`: "app default has no machine 000001ff000000",
	} {
		rec := s.call(t, "POST", createPath, body)
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusBadRequest || !strings.Contains(got.Error, want) {
			t.Errorf("%s: %d %+v, want %q", body, rec.Code, got, want)
		}
	}
	rec := s.call(t, "POST", "/v1/apps/other/machines", spare+`}}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusBadRequest || got.Error != "invalid config.standbys: app other has no machine "+string(m.ID) {
		t.Errorf("of another app: %d %+v", rec.Code, got)
	}
}

// TestRefusedFieldsPlaceNoOrder checks that a field is rejected, without placing an order, if
// ignoring it could lose data or would promise a guarantee that does not exist.
func TestRefusedFieldsPlaceNoOrder(t *testing.T) {
	s := start(t)
	for _, more := range []string{
		`"rootfs":{"persist":"always"}`, `"schedule":"sometimes"`, `"standbys":["148e21aabbccdd"]`, `"containers":[{"name":"a"}]`,
		`"guest":{"host_dedication_id":"x"}`,
	} {
		for _, path := range []string{createPath, "/v1/apps/default/quotes"} {
			rec := s.call(t, "POST", path, `{"config":{"image":"nginx",`+more+`}}`)
			if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusBadRequest || got.Code != bourse.CodeInvalid {
				t.Errorf("%s: %d %+v", more, rec.Code, got)
			}
		}
	}
	rec := s.call(t, "POST", createPath, `{"min_secrets_version":1795405490958337,"config":`+hostConfig+`}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusPreconditionFailed ||
		got.Error != "failed_precondition: version 1795405490958337 of the app's secrets has not arrived at this broker" {
		t.Errorf("%d %+v", rec.Code, got)
	}
	if len(s.orders) != 0 {
		t.Errorf("orders were placed: %+v", s.orders)
	}
}

// TestIgnoredMembersAreNamed checks that the replies to all other requests list ignored fields as
// well, even if the result is not the requested one.
func TestIgnoredMembersAreNamed(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	const ignored = "not supported by Bourse: ignored"
	for _, c := range []struct {
		path, body string
		want       []string
	}{
		{"/v1/apps", `{"name":"a1","org_slug":"personal","network":"","app_role_id":"","enable_subdomains":false}`, nil},
		{"/v1/apps", `{"name":"a2","app_role_id":"pg","enable_subdomains":true}`, []string{"app_role_id: " + ignored, "enable_subdomains: " + ignored}},
		{"/v1/apps/shop/volumes", `{"name":"data","region":"gru","compute":{"cpus":1}}`, nil},
		{"/v1/apps/shop/ip_assignments", `{"type":"private_v6"}`, nil},
		{"/v1/apps/shop/ip_assignments", ``, nil},
		{"/v1/apps/shop/ip_assignments", `{"type":"v4","region":"gru"}`, []string{
			"region: " + ignored,
			"type: an app has only its private_v6 address; no new address was assigned, and the reply contains the existing one",
		}},
		{"/v1/apps/shop/machines", `{"config":` + hostConfig + `,"lsvd":true}`, []string{"lsvd: " + ignored}},
		{"/v1/apps/shop/machines/" + string(m.ID) + "/stop", `{"id":"x","signal":"SIGTERM","timeout":"0s"}`, nil},
		{"/v1/apps/shop/machines/" + string(m.ID) + "/metadata", `{"metadata":{"any":"thing"}}`, nil},
	} {
		method := "POST"
		if strings.HasSuffix(c.path, "metadata") {
			method = "PUT"
		}
		rec := s.call(t, method, c.path, c.body)
		if got := rec.Header()[machinesapi.HeaderWarning]; rec.Code > 299 || cmp.Diff(c.want, got) != "" {
			t.Errorf("%s %s: status %d %s, warnings %q, want %q", c.path, c.body, rec.Code, rec.Body, got, c.want)
		}
	}
	for _, body := range []string{
		`{"name":"data","region":"gru","host_dedication_id":"x"}`,
		`{"name":"data","region":"gru","compute":{"host_dedication_id":"x"}}`,
		`{"name":"data","region":"gru","compute":{"guest":{"host_dedication_id":"x"}}}`,
	} {
		if rec := s.call(t, "POST", "/v1/apps/shop/volumes", body); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "invalid host_dedication_id") {
			t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
}
