package broker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// proxied is a fabric with proxies. It maps each proxy's ID to the proxy's reply.
type proxied struct {
	fabric.Fabric
	says map[bourse.WorkerID]string
}

func (p proxied) Call(ctx context.Context, to bourse.Member, r *http.Request) (*http.Response, error) {
	text, ok := p.says[to.ID]
	switch {
	case r.URL.Path != tenant.ProxyStatusPath:
		return p.Fabric.Call(ctx, to, r)
	case !ok:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "%s does not respond", to.ID)
	case text == "":
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	text = strings.ReplaceAll(text, "ASKED", r.URL.Query().Get("app"))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestProxies checks that every proxy is asked, and that the reply contains the other proxies if one does not answer. A
// token for an app sees only that app, whatever a proxy replies.
func TestProxies(t *testing.T) {
	s := start(t, withTokens)
	id := s.app(t, "shop", "acme").ID
	s.app(t, "bear", "zoo")
	route := func(app, id string) string {
		return fmt.Sprintf(`{"app":%q,"app_id":%q,"ports":"80","urls":["http://ASKED.localhost/"],"machines":[{"machine":"148e21ea1d5389","use":"no","why":"it is cordoned"}]}`, app, id)
	}
	says := map[bourse.WorkerID]string{
		"p1": `{"id":"w1","region":"zzz","error":"x","routes":[` + route("shop", id) + "," + route("shop", "another") + "," + route("other", "1") + `]}`,
		"p2": `{"routes":[{"app":7}]}`,
		"p3": "", // this proxy never answers
	}
	s = startOn(t, s.cluster, withTokens, func(c *broker.Config) {
		c.View, c.Workers = s.view, proxied{s.cluster, says}
		c.Members = func() []bourse.Member {
			return []bourse.Member{
				{ID: "p4", Role: bourse.RoleProxy, Region: "mad"},
				{ID: "p3", Role: bourse.RoleProxy, Region: "mad"},
				{ID: "p2", Role: bourse.RoleProxy, Region: "mad"},
				{ID: "p1", Role: bourse.RoleProxy, Region: "gru"},
			}
		}
	})
	for who, want := range map[string]map[string]int{
		"acme": {"/v1/apps/shop/proxies": 1, "/v1/apps/bear/proxies": -http.StatusForbidden, "/v1/proxies": -http.StatusForbidden},
		"shop": {"/v1/apps/shop/proxies": 1, "/v1/proxies": -http.StatusForbidden},
		"root": {"/v1/apps/shop/proxies": 1, "/v1/proxies": 3, "/v1/apps/none/proxies": -http.StatusNotFound},
	} {
		for path, routes := range want {
			rec := s.call(t, "GET", path, "", "Authorization", "Bearer "+who)
			if routes < 0 {
				if rec.Code != -routes {
					t.Errorf("%s of %s: %d %s, want %d", path, who, rec.Code, rec.Body, -routes)
				}
				continue
			}
			got := decodeBody[machinesapi.ProxyList](t, rec.Body.Bytes()).Proxies
			if len(got) != 4 || got[0].ID != "p1" || got[0].Region != "gru" || got[0].Error != "" || len(got[0].Routes) != routes || got[0].Routes[0].App != "shop" {
				t.Errorf("%s of %s: %d %s", path, who, rec.Code, rec.Body)
				continue
			}
			for _, silent := range got[1:] {
				if silent.Error == "" || len(silent.Routes) > 0 {
					t.Errorf("%s: %+v, want an error", path, silent)
				}
			}
		}
	}
}
