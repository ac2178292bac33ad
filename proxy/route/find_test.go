package route_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const ranged = `[{"internal_port":9000,"ports":[{"start_port":9000,"end_port":9010},{"port":7000,"handlers":["http"]}]}]`
	in := input([]bourse.App{app("web"), app("tcp"), app("empty")}, machine("web", 1, 1, web), machine("tcp", 1, 2, ranged), machine("empty", 1, 3, `[]`))
	in.Hosts = map[string]bourse.AppName{"www.example.org": "web", "bücher.example": "tcp", "10.0.0.1": "web", "nothing.example": "empty", "::1": "web"}
	table := route.Build(in)
	for _, c := range []struct {
		host string
		port int
		want string // expected app or error
		any  string // expected first port of FindAny's target; "": the same result as Find
	}{
		{host: "web.localhost", port: 80, want: "web"},
		{host: "WEB.LocalHost.", port: 443, want: "web"},
		{host: "web.apps.example.com", port: 443, want: "web"},
		{host: "www.example.org", port: 80, want: "web"},
		{host: "Bücher.example", port: 9005, want: "tcp"},
		{host: "xn--bcher-kva.example", port: 9010, want: "tcp"},
		{host: "ＷＥＢ.localhost", port: 80, want: "web"}, // normalized as browsers do
		{host: "10.0.0.1", port: 80, want: "web"},
		{host: "[::1]", port: 80, want: "web"},
		{host: "web.localhost", port: 8080, want: "app web does not serve port 8080; it serves 80, 443", any: "80"},
		{host: "tcp.localhost", port: 8999, want: "app tcp does not serve port 8999; it serves 7000, 9000-9010", any: "7000"},
		{host: "www.web.localhost", port: 80, want: `no app serves host "www.web.localhost"`},
		{host: "web", port: 80, want: `no app serves host "web"`},
		{host: "localhost", port: 80, want: `no app serves host "localhost"`},
		{host: "empty.localhost", port: 80, want: `no app serves host "empty.localhost"`},
		{host: "nothing.example", port: 80, want: `no app serves host "nothing.example"`},
		{host: "web.example.com", port: 80, want: `no app serves host "web.example.com"`},
		{host: "", port: 80, want: `no app serves host ""`},
		{host: ".", port: 80, want: `no app serves host "."`},
		{host: "web.localhost..", port: 80, want: `no app serves host "web.localhost.."`},
		{host: "a\x00b.localhost", port: 80, want: `no app serves host "a\x00b.localhost"`},
		{host: strings.Repeat("x", 300) + ".localhost", port: 80, want: "no app serves host " + bourse.Quoted(strings.Repeat("x", 300))},
		{host: strings.Repeat("ü", 3000), port: 80, want: "no app serves host " + bourse.Quoted(strings.Repeat("ü", 3000))},
	} {
		got := named(table.Find(c.host, c.port))
		if got != c.want {
			t.Errorf("Find(%q, %d) is %s, want %s", c.host, c.port, got, c.want)
		}
		target, err := table.FindAny(c.host, c.port)
		if c.any == "" {
			if named(target, err) != c.want {
				t.Errorf("FindAny(%q, %d) is %s, want %s", c.host, c.port, named(target, err), c.want)
			}
			continue
		}
		if err != nil || c.any == "80" && target.Port.First != 80 || c.any == "7000" && target.Port.First != 7000 {
			t.Errorf("FindAny(%q, %d): %+v, %v, want port %s", c.host, c.port, target, err, c.any)
		}
	}
	if got := named(table.AppPort("web", 443)); got != "web" {
		t.Errorf("AppPort: %s", got)
	}
	if got, want := named(table.AppPort("empty", 443)), `app "empty" does not exist or serves no ports`; got != want {
		t.Errorf("AppPort: %s, want %s", got, want)
	}
	if got := named(new(route.Table).Find("web.localhost", 80)); got != `no app serves host "web.localhost"` {
		t.Errorf("in an empty table: %s", got)
	}
}

func named(target *route.Target, err error) string {
	if err != nil {
		if bourse.CodeOf(err) != bourse.CodeNotFound {
			return "code " + string(bourse.CodeOf(err))
		}
		return err.Error()
	}
	return string(target.App.Name)
}

func FuzzFind(f *testing.F) {
	in := input([]bourse.App{app("web"), app("other")}, machine("web", 1, 1, web), machine("other", 1, 2, web))
	in.Hosts = map[string]bourse.AppName{"bücher.example": "web"}
	table := route.Build(in)
	for _, host := range []string{"web.localhost", "WEB.localhost.", "bücher.example", "xn--bcher-kva.example", "[::1]", "xn--", "a\xff.localhost", "web。localhost"} {
		f.Add(host, 80)
	}
	f.Fuzz(func(t *testing.T, host string, port int) {
		target, err := table.Find(host, port)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeNotFound || len(err.Error()) > 1024 {
				t.Errorf("%v", err)
			}
			return
		}
		if port != 80 && port != 443 {
			t.Errorf("%q:%d is %+v", host, port, target)
		}
		if strings.Contains(strings.ToLower(host), "web") && target.App.Name == "other" && !strings.Contains(strings.ToLower(host), "other") {
			t.Errorf("%q belongs to app other", host)
		}
	})
}
