package credentials

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`{"auths":{
		"https://index.docker.io/v1/": {"auth": "YW5uOnNlYzpyZXQ="},
		"registry.test:5000": {"username": "bob", "password": "b"},
		"token.test": {"auth": "YW5uOng=", "identitytoken": "t"},
		"helper.test": {}
	},"credsStore":"pass","credHelpers":{"https://index.docker.io/v1/":"hub"}}`))
	want := map[string]Login{
		"registry-1.docker.io": {"ann", "sec:ret"}, "registry.test:5000": {"bob", "b"}, "token.test": {"", "t"},
	}
	if diff := cmp.Diff(want, got.Logins); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
	if got.Store != "pass" || got.Helpers["registry-1.docker.io"] != "hub" {
		t.Errorf("store %q, helpers %v", got.Store, got.Helpers)
	}
	for _, raw := range []string{``, `[]`, `{"auths":{"a":{"auth":"?"}}}`, `{"auths":{"a":{"auth":"YW5u"}}}`} {
		if got, err := Parse([]byte(raw)); err == nil {
			t.Errorf("%q is read as %v", raw, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"YW5uOnNlY3JldA=="}}}`))
	f.Add([]byte(`{"auths":{"a":{"identitytoken":"t"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Parse(raw)
		if err == nil && !json.Valid(raw) {
			t.Errorf("%q is read as %v", raw, got)
		}
		for host, l := range got.Logins {
			if l == (Login{}) {
				t.Errorf("%q has an empty login", host)
			}
		}
	})
}

// TestHelpers runs scripts that implement the protocol of docker's credential helpers.
func TestHelpers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	helper(t, dir, "some", `case $(cat) in
https://index.docker.io/v1/) echo '{"Username":"ann","Secret":"hub"}';;
token.test) echo '{"Username":"<token>","Secret":"t"}';;
*) echo credentials not found in native keychain; exit 1;;
esac`)
	helper(t, dir, "broken", "echo locked; exit 1")
	f := File{
		Logins:  map[string]Login{"plain.test": {"bob", "b"}},
		Helpers: map[string]string{"broken.test": "broken", "gone.test": "gone", "path.test": "../some"},
		Store:   "some",
	}
	for host, want := range map[string]Login{
		"registry-1.docker.io": {"ann", "hub"}, "token.test": {"", "t"}, "plain.test": {"bob", "b"}, "none.test": {},
	} {
		if got, err := f.Of(host); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", host, got, err, want)
		}
	}
	for host, want := range map[string]string{
		"broken.test": "locked", "gone.test": "docker-credential-gone, which is not installed", "path.test": "use a name, not a path",
	} {
		if got, err := f.Of(host); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error with %q", host, got, err, want)
		}
	}
}

// helper writes a credential helper.
func helper(t *testing.T, dir, name, script string) {
	t.Helper()
	path := filepath.Join(dir, "docker-credential-"+name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
}
