package replay_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func get(url string, pairs ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	maps.Copy(r.Header, header(pairs...))
	return r
}

func cached(t *testing.T, text, pattern, ttl string, more ...string) *replay.Replay {
	t.Helper()
	h := header(append(more, "fly-replay", text)...)
	if pattern != "" {
		h.Set("fly-replay-cache", pattern)
		h.Set("fly-replay-cache-ttl-secs", ttl)
	}
	r, err := replay.Parse(replay.Header, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCacheByPath(t *testing.T) {
	c := replay.NewCache()
	store := func(url, text, pattern string) string {
		return c.Store(web, get(url), one, cached(t, text, pattern, "60"), noon)
	}
	for _, s := range []struct{ url, text, pattern, unkept string }{
		{"http://web.test/a/b", "app=other", "/a/*", ""},
		{"http://web.test/a/deep/x", "region=mad", "/a/deep/*", ""},
		{"http://web.test/a", "app=other", "/b/*", "does not match"},
		{"http://web.test/a", "app=other", "else.test/*", "another domain"},
		{"http://web.test/a/b", "app=other;state=x", "/a/*", "has a state"},
		{"http://web.test/a/b", "app=other;timeout=1s", "/a/*", "timeout"},
		{"http://web.test/a/b", "app=other;state=x", "", ""}, // the machine did not ask for caching
	} {
		if got := store(s.url, s.text, s.pattern); !strings.Contains(got, s.unkept) || (got == "") != (s.unkept == "") {
			t.Errorf("%v: %q", s, got)
		}
	}
	if c.Len() != 2 {
		t.Errorf("%d entries", c.Len())
	}
	for url, want := range map[string]string{
		"http://web.test/a/b/c":                        "other",
		"http://WEB.test:8080/a":                       "other",
		"http://web.test/a/":                           "other",
		"http://web.test/a/deep/y":                     "mad",
		"http://web.test/ab":                           "",
		"http://web.test/":                             "",
		"http://else.test/a/b":                         "",
		"http://web.test/" + strings.Repeat("/", 5000): "",
	} {
		kept, status := c.Lookup(web, get(url), noon.Add(59*time.Second))
		got := string(kept.Replay.App)
		if len(kept.Replay.Regions) > 0 {
			got = string(kept.Replay.Regions[0])
		}
		if got != want || (status == replay.Hit) != (want != "") {
			t.Errorf("%.40s: %q (%s), want %q", url, got, status, want)
		}
	}
	if _, status := c.Lookup(at443, get("http://web.test/a/b"), noon); status != "" {
		t.Errorf("another app: %s", status)
	}
	// An entry becomes invalid when it expires or its issuer's version changes.
	if _, status := c.Lookup(web, get("http://web.test/a/b"), noon.Add(time.Minute)); status != "" {
		t.Errorf("after the entry has expired: %s", status)
	}
	next := *web
	next.Backends = []route.Backend{{Machine: one, Instance: "v2", Region: "gru"}}
	if _, status := c.Lookup(&next, get("http://web.test/a/deep/x"), noon); status != "" || c.Len() != 0 {
		t.Errorf("after an update: %s, %d entries", status, c.Len())
	}
}

func TestCacheBypassAndInvalidate(t *testing.T) {
	c := replay.NewCache()
	skip := get("http://web.test/a/b", "fly-replay-cache-control", "skip")
	c.Store(web, skip, one, cached(t, "app=other", "/a/*", "60"), noon)
	if _, status := c.Lookup(web, skip, noon); status != replay.Hit {
		t.Errorf("bypass where it is not allowed: %s", status)
	}
	c.Store(web, skip, one, cached(t, "app=other", "/a/*", "60", "fly-replay-cache-allow-bypass", "yes"), noon)
	if kept, status := c.Lookup(web, skip, noon); status != replay.Bypass || kept.Issuer != "" {
		t.Errorf("bypass where it is allowed: %s", status)
	}
	if _, status := c.Lookup(web, get("http://web.test/a/b"), noon); status != replay.Hit {
		t.Errorf("other requests after that: %s", status)
	}
	c.Store(web, skip, one, cached(t, "app=web", "", "", "fly-replay-cache", "invalidate"), noon)
	if c.Len() != 0 {
		t.Error("not invalidated")
	}
}

func TestCacheBySession(t *testing.T) {
	c := replay.NewCache()
	web := *web
	web.Port.HTTP.ReplayCache = []workload.ReplayCache{
		{PathPrefix: "/", TTLSeconds: 3600, Type: "cookie", Name: "session"},
		{PathPrefix: "/api", TTLSeconds: 3600, Type: "header", Name: "Authorization"},
	}
	ann, bob := get("http://web.test/x", "Cookie", "session=ann"), get("http://web.test/x", "Cookie", "session=bob")
	api := get("http://web.test/api/1", "Authorization", "ann")
	for r, text := range map[*http.Request]string{ann: "region=gru", bob: "region=mad", api: "app=other"} {
		if why := c.Store(&web, r, one, cached(t, text, "", ""), noon); why != "" {
			t.Error(why)
		}
	}
	c.Store(&web, get("http://web.test/x"), one, cached(t, "app=other", "", ""), noon)                                  // the request has no session
	c.Store(&web, get("http://web.test/x", "Cookie", "session=eve"), one, cached(t, "app=other;state=x", "", ""), noon) // a replay with a state is not cached
	if c.Len() != 3 {
		t.Errorf("%d entries, want 3", c.Len())
	}
	for r, want := range map[*http.Request]bourse.Region{ann: "gru", bob: "mad"} {
		if kept, status := c.Lookup(&web, r, noon); status != replay.Hit || kept.Replay.Regions[0] != want {
			t.Errorf("%v: %s, %+v", r.Header, status, kept)
		}
	}
	for _, r := range []*http.Request{
		get("http://web.test/x", "Cookie", "session=eve"), get("http://web.test/x", "Authorization", "ann"), get("http://other.test/x", "Cookie", "session=ann"),
	} {
		if _, status := c.Lookup(&web, r, noon); status != "" {
			t.Errorf("%s %v: %s", r.URL, r.Header, status)
		}
	}
}

// TestCacheIsBounded checks that the number of cached sessions per app is limited, and that an app never evicts another
// app's entries.
func TestCacheIsBounded(t *testing.T) {
	c := replay.NewCache()
	web := *web
	web.Port.HTTP.ReplayCache = []workload.ReplayCache{{PathPrefix: "/", TTLSeconds: 3600, Type: "cookie", Name: "s"}}
	quiet := get("http://other.test/a")
	c.Store(other, quiet, three, cached(t, "app=web", "/*", "60"), noon)
	r := cached(t, "app=other", "", "")
	for i := range 6000 {
		c.Store(&web, get("http://web.test/", "Cookie", fmt.Sprintf("s=%d", i)), one, r, noon)
	}
	if c.Len() != 5001 {
		t.Errorf("%d entries, want 5001", c.Len())
	}
	if _, status := c.Lookup(other, quiet, noon); status != replay.Hit {
		t.Error("another app's entry was evicted")
	}
	if _, status := c.Lookup(&web, get("http://web.test/", "Cookie", "s=5999"), noon); status != replay.Hit {
		t.Error("the newest entry was evicted")
	}
}
