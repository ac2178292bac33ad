package broker_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestServicesThatCannotBeServed checks that create, update and quote reject services that a host process cannot have,
// with an explanation. They accept the same services for an image, because its machines may have their own network.
func TestServicesThatCannotBeServed(t *testing.T) {
	config := func(services string) string {
		return `{"region":"gru","config":` + strings.Replace(hostConfig, "{", `{"services":`+services+`,`, 1) + `}`
	}
	for services, want := range map[string]string{
		`[{"internal_port":80},{"internal_port":80},{"protocol":"udp","internal_port":53},{}]`: "",
		`[{"internal_port":80},{"internal_port":90}]`:                                          "invalid config.services[1].internal_port 90: a machine with image host has one port, its $PORT",
		`[{"internal_port":70000}]`:                                                            "invalid config.services[0].internal_port 70000",
		`[{"protocol":"sctp"}]`:                                                                "invalid config.services[0].protocol",
		`[{"ports":[{"port":80,"handlers":["gopher"]}]}]`:                                      "invalid config.services[0].ports[0].handlers",
	} {
		s := start(t)
		s.app(t, "shop", "acme")
		rec := s.call(t, "POST", "/v1/apps/shop/machines", config(services))
		if ok := rec.Code == http.StatusOK; ok != (want == "") || !ok && (rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), want)) {
			t.Errorf("%s: status %d: %s, want %q", services, rec.Code, rec.Body, want)
		}
	}
	s := start(t)
	s.app(t, "shop", "acme")
	body := strings.Replace(config(`[{"internal_port":80},{"internal_port":90}]`), `"host"`, `"nginx"`, 1)
	if rec := s.call(t, "POST", "/v1/apps/shop/machines", body); rec.Code != http.StatusOK {
		t.Errorf("an image with two ports: status %d: %s", rec.Code, rec.Body)
	}
}
