package loopback_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// in returns an environment in which dir is the directory of credentials.
func in(dir string) func(string) string {
	return func(name string) string {
		if name == loopback.Variable {
			return dir
		}
		return ""
	}
}

var api = netip.MustParseAddrPort("127.0.0.1:4280")

func found(getenv func(string) string, api string) string {
	token, _ := loopback.Find(getenv, api)
	return token
}

// A client finds the token of the API that it calls, and not the token of another API.
func TestFind(t *testing.T) {
	env := in(filepath.Join(t.TempDir(), "run"))
	token, err := loopback.TokenOf(env, api)
	if err != nil {
		t.Fatal(err)
	}
	six, err := loopback.TokenOf(env, netip.MustParseAddrPort("[::1]:9"))
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"http://127.0.0.1:4280": token.Text, "http://127.0.0.1:4280/": token.Text, "https://127.0.0.1:4280": token.Text, "http://localhost:4280": token.Text,
		"http://[::1]:9": six.Text, "http://localhost:9": six.Text,
		"http://127.0.0.1:4281": "", "http://127.0.0.1": "", "http://10.0.0.1:4280": "", "http://evil.example:4280": "",
		"http://127.0.0.1.evil.example:4280": "", "http://127.0.0.1:4280@evil.example": "", "http://../x:4280": "", "127.0.0.1:4280": "", "": "", "%": "",
	} {
		got, at := loopback.Find(env, url)
		if got != want {
			t.Errorf("Find(%q) = %q, want %q", url, got, want)
		}
		if strings.Contains(at, "localhost") || (at == "") != (want == "") {
			t.Errorf("Find(%q) returned the URL %q", url, at)
		}
	}
	if again, err := loopback.TokenOf(env, api); err != nil || again.Text != token.Text {
		t.Errorf("the token changed after a kill: %v", err)
	}
	if err := token.Remove(); err != nil || found(env, "http://127.0.0.1:4280") != "" {
		t.Errorf("a removed token was found (%v)", err)
	}
	if err := token.Remove(); err != nil {
		t.Errorf("second removal: %v", err)
	}
}

// Other users can read neither the files nor the directory.
func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	token, err := loopback.TokenOf(in(dir), api)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, token.File: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v (%v), want mode %#o", path, info.Mode(), err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory contains %v (%v), want only the token", left, err)
	}
}

// TestOthersCannotPlantCredentials checks that files that other users may have created are not
// trusted, and that nothing is written through links.
func TestOthersCannotPlantCredentials(t *testing.T) {
	name := loopback.TokenFile(api)
	for what, plant := range map[string]func(dir string) error{
		"a directory that others can write": func(dir string) error { return os.Chmod(dir, 0o777) },
		"a file that others can read": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("A", 26)), 0o644)
		},
		"a link to a file outside": func(dir string) error {
			target := filepath.Join(dir, "..", "target")
			if err := os.WriteFile(target, []byte(strings.Repeat("A", 26)), 0o600); err != nil {
				return err
			}
			return os.Symlink(target, filepath.Join(dir, name))
		},
		"a link to a missing file": func(dir string) error { return os.Symlink("../nothing", filepath.Join(dir, name)) },
		"a directory":              func(dir string) error { return os.Mkdir(filepath.Join(dir, name), 0o700) },
		"an empty file":            func(dir string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) },
		"a long file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("A", 100)), 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(dir); err != nil {
				t.Fatal(err)
			}
			if token, err := loopback.TokenOf(in(dir), api); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("a token was created: %q, %v", token.Text, err)
			}
			if got := found(in(dir), "http://127.0.0.1:4280"); got != "" {
				t.Errorf("got token %q, want none", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "..", "nothing")); err == nil {
				t.Error("a file was written through a link")
			}
		})
	}
}

// Servers of a cluster that start concurrently share one secret. Other clusters have other
// secrets.
func TestServersAgreeOnTheSecret(t *testing.T) {
	env := in(filepath.Join(t.TempDir(), "run"))
	found := make([]loopback.Secret, 16)
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() {
			var err error
			if found[i], err = loopback.SecretOf(env, "c1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if slices.Sort(found); found[0] != found[len(found)-1] || found[0] == "" {
		t.Errorf("got secrets %q, want a single one", found)
	}
	if other, err := loopback.SecretOf(env, "c2"); err != nil || other == found[0] {
		t.Errorf("another cluster has the same secret (%v)", err)
	}
	if found[0].Text("a") == found[0].Text("b") || strings.Contains(found[0].Text("a"), string(found[0])) {
		t.Error("the keys for two purposes are the same")
	}
	if loopback.Secret("").For("a") != nil {
		t.Error("a key was derived without a secret")
	}
	if err := loopback.RemoveSecret(env, "c1"); err != nil {
		t.Fatal(err)
	}
	if again, err := loopback.SecretOf(env, "c1"); err != nil || again == found[0] {
		t.Errorf("a removed secret was returned again (%v)", err)
	}
}

func TestDir(t *testing.T) {
	root := os.Geteuid() == 0
	for _, tt := range []struct {
		env        map[string]string
		user, root string
	}{
		{map[string]string{loopback.Variable: "/x", "XDG_RUNTIME_DIR": "/y"}, "/x", "/x"},
		{map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/h"}, "/run/user/1000/bourse", "/run/bourse"},
		{map[string]string{"HOME": "/h"}, "/h/.local/state/bourse", "/run/bourse"},
		{nil, "", "/run/bourse"},
	} {
		want := tt.user
		if root {
			want = tt.root
		}
		if got, err := loopback.Dir(func(name string) string { return tt.env[name] }); strings.TrimPrefix(got, "/var") != want || (err != nil) != (want == "") {
			t.Errorf("with %v: %q, %v; want %q", tt.env, got, err, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "run")
	if _, err := loopback.TokenOf(in(dir), api); err != nil {
		f.Fatal(err)
	}
	f.Add("http://127.0.0.1:4280")
	f.Add("http://localhost:4280/../x")
	f.Fuzz(func(t *testing.T, url string) {
		if found(in(dir), "http://evil.example/"+url) != "" || found(in(dir), "http://"+url+".example:4280") != "" {
			t.Errorf("the result for %q contains the token", url)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("ABCDEFGHIJKLMNOPQRSTUVWXYZ\n"))
	f.Add([]byte("\x00\r\n"))
	dir := filepath.Join(f.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	s, err := loopback.Open(dir, false)
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "x"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read("x"); err == nil && (len(got) != 26 || strings.ContainsAny(got, "\r\n\x00 \"")) {
			t.Errorf("Read returned %q for the text %q", got, text)
		}
	})
}

// TestDev checks that only this user's programs find the address that was stored last, and that
// only the cluster that stored it removes it.
func TestDev(t *testing.T) {
	env := in(filepath.Join(t.TempDir(), "run"))
	one, other := netip.MustParseAddrPort("127.0.0.1:4280"), netip.MustParseAddrPort("127.0.0.1:5555")
	if got := loopback.Dev(env); got.IsValid() {
		t.Errorf("before a cluster was started: got address %s, want none", got)
	}
	for _, api := range []netip.AddrPort{one, other} {
		if err := loopback.SetDev(env, api); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := loopback.SetDev(env, other); err != nil || loopback.Dev(env) != other {
					t.Errorf("with several clusters: got %s, %v; want %s", loopback.Dev(env), err, other)
				}
			}
		})
	}
	all.Wait()
	if err := loopback.UnsetDev(env, one); err != nil || loopback.Dev(env) != other {
		t.Errorf("after the first cluster has ended: got %s, %v; want %s", loopback.Dev(env), err, other)
	}
	file := filepath.Join(env(loopback.Variable), "dev.api")
	for _, text := range []string{"", "nonsense", "10.0.0.1:4280", strings.Repeat("1", 100)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := loopback.Dev(env); got.IsValid() {
			t.Errorf("%q was parsed as %s", text, got)
		}
	}
	if err := errors.Join(loopback.SetDev(env, other), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := loopback.Dev(env); got.IsValid() {
		t.Errorf("a file that others can read was parsed as %s", got)
	}
	if err := errors.Join(os.Chmod(file, 0o600), loopback.UnsetDev(env, other)); err != nil || loopback.Dev(env).IsValid() {
		t.Errorf("after the last cluster has ended: %s, %v", loopback.Dev(env), err)
	}
}
