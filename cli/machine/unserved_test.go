package machine

import (
	"encoding/json"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestServed checks the note about how a machine's services can be accessed.
func TestServed(t *testing.T) {
	for _, c := range []struct{ image, app, services, want string }{
		{"nginx", "default", ``, ""},
		{"nginx", "default", `[]`, ""},
		{"nginx", "default", `[{"internal_port":80}]`, ""}, // the service has no external port
		{"nginx", "default", `"?"`, ""},
		{
			"nginx", "default", `[{"protocol":"tcp","internal_port":80,"ports":[{"port":80}]}]`,
			"proxies serve port 80; with bourse dev: http://default.localhost:8080; without a proxy: bourse machine forward 00000100000001 8080:80",
		},
		{
			"nginx", "shop", `[{"protocol":"udp","internal_port":53,"ports":[{"port":53}]},{"protocol":"tcp","internal_port":8080,"ports":[{"port":443},{"port":80}]}]`,
			"proxies serve its ports; with bourse dev: http://shop.localhost:8080; without a proxy: bourse machine forward -a shop 00000100000001 8080:8080",
		},
		{
			"nginx", "default", `[{"protocol":"udp","internal_port":53,"ports":[{"port":53}]}]`,
			"no proxy serves port 53, because proxies only serve TCP",
		},
		{
			"pull", "default", `[{"protocol":"tcp","internal_port":80,"ports":[{"port":80}]}]`,
			"no proxy serves port 80, because a poller's machines cannot be accessed",
		},
	} {
		var m machinesapi.Machine
		m.ID, m.App = "00000100000001", bourse.AppName(c.app)
		m.Config = &bourse.Config{Image: c.image}
		m.Config.Services = json.RawMessage(c.services)
		if got := served(&m); got != c.want {
			t.Errorf("%s in %s, %s: %q, want %q", c.image, c.app, c.services, got, c.want)
		}
	}
}
