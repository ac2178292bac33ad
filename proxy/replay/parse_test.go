package replay_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/replay"
)

const (
	one = bourse.MachineID("00000100000001")
	two = bourse.MachineID("00000200000002")
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestParseHeader(t *testing.T) {
	for text, want := range map[string]replay.Replay{
		"region=gru":                               {Regions: []bourse.Region{"gru"}},
		`region="gru, MAD,eu,any"`:                 {Regions: []bourse.Region{"gru", "mad", "eu", "any"}},
		"region=gru,mad":                           {Regions: []bourse.Region{"gru", "mad"}},
		"instance=00000100000001":                  {Instance: one},
		" instance = 00000100000001 ; state = a b": {Instance: one, State: "a b"},
		"prefer_instance=00000100000001":           {PreferInstance: one},
		"app=other;state=x=y":                      {App: "other", State: "x=y"},
		`app=other;state="a;b\"c\\"`:               {App: "other", State: `a;b"c\`},
		"app=other;state=":                         {App: "other"},
		"elsewhere=true;;":                         {Elsewhere: true},
		"Elsewhere=True;App=other":                 {Elsewhere: true, App: "other"},
		"app=a;timeout=800ms;fallback=force_self":  {App: "a", Timeout: 800 * time.Millisecond, Fallback: replay.ForceSelf},
		"app=a;timeout=10s;fallback=prefer_self":   {App: "a", Timeout: 10 * time.Second, Fallback: replay.PreferSelf},
		"region=gru;state=été":                     {Regions: []bourse.Region{"gru"}, State: "été"},
	} {
		got, err := replay.Parse(replay.Header, header("fly-replay", text), nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s: -want +got\n%s", text, diff)
		}
	}
}

func TestParseHeaderRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "no region, instance, app or elsewhere=true specified",
		"state=a":               "no region, instance",
		"elsewhere=false":       "no region, instance",
		"gru":                   "is not of the form field=value",
		"region=gru;mad":        `"mad" is not of the form field=value`,
		"region=":               "region is empty",
		"region=gru;region=mad": "field region appears twice",
		"region=gru,,mad":       "is not a short code",
		"region=g_u":            "is not a short code",
		`region="gru`:           "missing closing quotation mark",
		`region="gru"mad`:       "after a quoted value",
		"instance=machine1":     "is not a machine id",
		"instance=00000100000001;prefer_instance=00000200000002": "mutually exclusive",
		"app=Other_App":                            "is not an app name",
		"app=a;timeout=10":                         "is not a duration",
		"app=a;timeout=-1s":                        "is not a duration",
		"app=a;timeout=1h":                         "exceeds the maximum of 10m",
		"app=a;fallback=self":                      "use force_self or prefer_self",
		"app=a;elsewhere=maybe":                    "use true",
		"app=a;path=/x":                            `unknown field "path"`,
		"app=a;state=a\x00b":                       "control character",
		"app=a;state=" + strings.Repeat("a", 5000): "the maximum is 4096",
		"app=" + strings.Repeat("a", 9000):         "the maximum is 8192",
		"region=" + strings.Repeat("a,", 40) + "a": "more than 32",
	} {
		_, err := replay.Parse(replay.Header, header("fly-replay", text), nil)
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	for _, h := range []http.Header{
		header("fly-replay", "app=a", "fly-replay", "app=b"),
		header("fly-replay", "app=a", "content-type", replay.ContentType),
	} {
		if _, err := replay.Parse(replay.Header, h, nil); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%v: %v", h, err)
		}
	}
}

func TestParseCacheHeaders(t *testing.T) {
	parse := func(pairs ...string) (replay.CacheRule, error) {
		r, err := replay.Parse(replay.Header, header(append(pairs, "fly-replay", "app=a")...), nil)
		if err != nil {
			return replay.CacheRule{}, err
		}
		return r.Cache, nil
	}
	for name, c := range map[string]struct {
		pairs []string
		want  replay.CacheRule
		err   string
	}{
		"none":       {},
		"path":       {pairs: []string{"fly-replay-cache", "/a/*", "fly-replay-cache-ttl-secs", "10"}, want: replay.CacheRule{Prefix: "/a/", TTL: 10 * time.Second}},
		"all":        {pairs: []string{"fly-replay-cache", "/*", "fly-replay-cache-ttl-secs", "60"}, want: replay.CacheRule{Prefix: "/", TTL: time.Minute}},
		"host":       {pairs: []string{"fly-replay-cache", "Example.com/a/*", "fly-replay-cache-ttl-secs", "60"}, want: replay.CacheRule{Host: "example.com", Prefix: "/a/", TTL: time.Minute}},
		"bypass":     {pairs: []string{"fly-replay-cache", "/*", "fly-replay-cache-ttl-secs", "60", "fly-replay-cache-allow-bypass", "yes"}, want: replay.CacheRule{Prefix: "/", TTL: time.Minute, AllowBypass: true}},
		"long":       {pairs: []string{"fly-replay-cache", "/*", "fly-replay-cache-ttl-secs", "9223372036854775807"}, want: replay.CacheRule{Prefix: "/", TTL: 24 * time.Hour}},
		"invalidate": {pairs: []string{"fly-replay-cache", "invalidate"}, want: replay.CacheRule{Invalidate: true}},
		"short":      {pairs: []string{"fly-replay-cache", "/*", "fly-replay-cache-ttl-secs", "9"}, err: "the minimum is 10"},
		"no ttl":     {pairs: []string{"fly-replay-cache", "/*"}, err: "number of seconds"},
		"no star":    {pairs: []string{"fly-replay-cache", "/a", "fly-replay-cache-ttl-secs", "10"}, err: "ends with /*"},
		"stars":      {pairs: []string{"fly-replay-cache", "/*/a/*", "fly-replay-cache-ttl-secs", "10"}, err: "ends with /*"},
		"port":       {pairs: []string{"fly-replay-cache", "a:80/*", "fly-replay-cache-ttl-secs", "10"}, err: "contains a port"},
		"deep":       {pairs: []string{"fly-replay-cache", strings.Repeat("/a", 40) + "/*", "fly-replay-cache-ttl-secs", "10"}, err: "levels"},
	} {
		got, err := parse(c.pairs...)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func parseJSON(body string) (*replay.Replay, error) {
	h := header("content-type", replay.ContentType+"; charset=utf-8")
	if form := replay.FormOf(h); form != replay.JSON {
		panic(form)
	}
	return replay.Parse(replay.JSON, h, []byte(body))
}

func TestParseJSON(t *testing.T) {
	got, err := parseJSON(`{"region": "iad,us", "prefer_instance": "00000100000001", "app": "other", "state": "a;b", "elsewhere": true,
		"timeout": "5s", "fallback": "prefer_self", "allow_bypass": true, "cache": {"prefix": "/x/*", "ttl": 60},
		"transform": {"path": "/new?q=1", "delete_headers": ["cookie"], "set_headers": [{"name": "x-a", "value": "b"}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := &replay.Replay{
		Regions: []bourse.Region{"iad", "us"}, PreferInstance: one, App: "other", State: "a;b", Elsewhere: true,
		Timeout: 5 * time.Second, Fallback: replay.PreferSelf,
		Cache: replay.CacheRule{Prefix: "/x/", TTL: time.Minute, AllowBypass: true},
	}
	want.Transform.Path, want.Transform.DeleteHeaders = "/new?q=1", []string{"cookie"}
	want.Transform.SetHeaders = []replay.SetHeader{{Name: "x-a", Value: "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	u, _ := url.Parse("/old?p=2")
	h := header("cookie", "secret", "x-a", "a", "x-b", "kept")
	got.Transform.Apply(u, h)
	if diff := cmp.Diff(header("x-a", "b", "x-b", "kept"), h); diff != "" || u.String() != "/new?q=1" {
		t.Errorf("transformed to %s, headers -want +got\n%s", u, diff)
	}
	if got, err := parseJSON(`{"app": "origin", "cache": {"invalidate": true}}`); err != nil || !got.Cache.Invalidate {
		t.Errorf("invalidate: %+v, %v", got, err)
	}
}

func TestParseJSONRefused(t *testing.T) {
	for body, want := range map[string]string{
		``:                           "not a valid JSON replay",
		`[]`:                         "not a valid JSON replay",
		`{"app": 1}`:                 "not a valid JSON replay",
		`{"app": "a"} {}`:            "data after the JSON object",
		`{"app": "a", "regions": 1}`: "unknown field",
		`{"app": "a", "transform": {"body": "x"}}`: "unknown field",
		`{"state": "a"}`:                                                                      "no region, instance",
		`{"app": "a", "state": "x\r\nevil: 1"}`:                                               "control character",
		`{"app": "a", "timeout": "soon"}`:                                                     "is not a duration",
		`{"app": "a", "cache": {"prefix": "/*"}}`:                                             "cache.ttl",
		`{"app": "a", "cache": {"prefix": "/*", "ttl": 1}}`:                                   "the minimum is 10",
		`{"transform": {"path": "http://evil/"}}`:                                             "begins with \"/\"",
		`{"transform": {"path": "/a b"}}`:                                                     "begins with \"/\"",
		`{"transform": {"path": "/a\r\nx: y"}}`:                                               "begins with \"/\"",
		`{"transform": {"delete_headers": ["Host"]}}`:                                         "cannot be changed",
		`{"transform": {"delete_headers": ["a b"]}}`:                                          "is not a header name",
		`{"transform": {"set_headers": [{"name": "content-length", "value": "1"}]}}`:          "cannot be changed",
		`{"transform": {"set_headers": [{"name": "fly_replay_src", "value": "instance=x"}]}}`: "cannot be changed",
		`{"transform": {"set_headers": [{"name": "x", "value": "a\nb"}]}}`:                    "control character",
		`{"transform": {"set_headers": [{"value": "a"}]}}`:                                    "is not a header name",
		`{"transform": {"delete_headers": ["a"` + strings.Repeat(`,"a"`, 64) + `]}}`:          "the maximum is 64",
		strings.Repeat(" ", replay.MaxBody) + `{"app": "a"}`:                                  "exceeds 65536 bytes",
	} {
		_, err := parseJSON(body)
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", body, err, want)
		}
	}
	h := header("content-type", replay.ContentType, "content-encoding", "gzip")
	if _, err := replay.Parse(replay.JSON, h, []byte(`{"app": "a"}`)); err == nil {
		t.Error("an encoded body: no error")
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(`region="gru,any";app=a;state="x;y";timeout=1s;fallback=force_self`, "/a/*", "60")
	f.Add(`instance=00000100000001;elsewhere=true`, "invalidate", "")
	f.Add(`;;=;"`, "example.com/*", "9999999999999999999")
	f.Fuzz(func(t *testing.T, text, pattern, ttl string) {
		h := http.Header{"Fly-Replay": {text}, "Fly-Replay-Cache": {pattern}, "Fly-Replay-Cache-Ttl-Secs": {ttl}}
		check(t, replay.Header, h, nil)
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"app": "a", "state": "\u0000", "transform": {"path": "/x", "set_headers": [{"name": "a", "value": "b"}]}}`))
	f.Add([]byte(`{"instance": "00000100000001", "cache": {"prefix": "/*", "ttl": 10}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		check(t, replay.JSON, header("content-type", replay.ContentType), body)
	})
}

// check checks that a replay that was parsed successfully can be executed.
func check(t *testing.T, form replay.Form, h http.Header, body []byte) {
	r, err := replay.Parse(form, h, body)
	if err != nil {
		if bourse.CodeOf(err) != bourse.CodeInvalid || len(err.Error()) > 2048 {
			t.Errorf("error %v", err)
		}
		return
	}
	for _, v := range []string{
		replay.Source(issuer(), time.Unix(1, 0), r.State), replay.Failed(r, issuer(), replay.TimedOut, time.Second),
	} {
		if strings.ContainsAny(v, "\r\n\x00") {
			t.Errorf("a header of two lines: %q", v)
		}
	}
	u, out := &url.URL{Path: "/"}, http.Header{}
	r.Transform.Apply(u, out)
	if !strings.HasPrefix(u.RequestURI(), "/") || strings.ContainsAny(u.RequestURI(), " \r\n") {
		t.Errorf("path %q", u.RequestURI())
	}
	if c := r.Cache; c.Prefix != "" && (c.TTL < 10*time.Second || c.TTL > 24*time.Hour || !strings.HasSuffix(c.Prefix, "/")) {
		t.Errorf("rule %+v", c)
	}
}
