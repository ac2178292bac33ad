package image

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDockerConfig(t *testing.T) {
	got, err := parseDockerConfig([]byte(`{"auths":{
		"https://index.docker.io/v1/": {"auth": "YW5uOnNlYzpyZXQ="},
		"registry.test:5000": {"username": "bob", "password": "b"},
		"token.test": {"auth": "YW5uOng=", "identitytoken": "t"},
		"helper.test": {}
	},"credsStore":"pass"}`))
	want := map[string]login{
		"registry-1.docker.io": {"ann", "sec:ret"}, "registry.test:5000": {"bob", "b"}, "token.test": {"", "t"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(login{})); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
	for _, raw := range []string{``, `[]`, `{"auths":{"a":{"auth":"?"}}}`, `{"auths":{"a":{"auth":"YW5u"}}}`} {
		if got, err := parseDockerConfig([]byte(raw)); err == nil {
			t.Errorf("%q is read as %v", raw, got)
		}
	}
}

func FuzzParseDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"YW5uOnNlY3JldA=="}}}`))
	f.Add([]byte(`{"auths":{"a":{"identitytoken":"t"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parseDockerConfig(raw)
		if err == nil && !json.Valid(raw) {
			t.Errorf("%q is read as %v", raw, got)
		}
		for host, l := range got {
			if l == (login{}) {
				t.Errorf("%q has an empty login", host)
			}
		}
	})
}

// TestRegistriesAreBounded names more registries than connections are kept of.
func TestRegistriesAreBounded(t *testing.T) {
	r := &registries{}
	for i := range 3 * maxRegistries {
		if _, err := r.host("", string(rune('a'+i%26))+string(rune('a'+i/26))+".test"); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.hosts) != maxRegistries {
		t.Errorf("%d registries are kept, want %d", len(r.hosts), maxRegistries)
	}
}

func TestSchemes(t *testing.T) {
	r := &registries{config: map[string]Registry{"plain.test": {PlainHTTP: true}, "127.0.0.1:2": {CA: "/dev/null"}}}
	for host, want := range map[string]string{"registry.test": "https", "plain.test": "http", "127.0.0.1:1": "http", "localhost": "http", "[::1]:5": "http"} {
		h, err := r.host("", host)
		if err != nil || h.Scheme != want {
			t.Errorf("%s is reached by %s, %v, want %s", host, h.Scheme, err, want)
		}
	}
	if _, err := r.host("", "127.0.0.1:2"); err == nil {
		t.Error("an authority without a certificate is taken")
	}
}
