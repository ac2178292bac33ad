package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRuncReadsTheVariables checks that secret variables are added to the process that runc reads
// and override its variables, and that everything else is unchanged.
func TestRuncReadsTheVariables(t *testing.T) {
	base, bundle := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "c1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "c1", variables), []byte(`["B=secret","C=x=y"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	const process = `{"args":["sh"],"env":["A=1","B=2"],"later":{"kept":1.50}}`
	const want = `{"args":["sh"],"env":["A=1","B=secret","C=x=y"],"later":{"kept":1.50}}`
	config, other := filepath.Join(bundle, "config.json"), filepath.Join(bundle, "process")
	if err := os.WriteFile(config, []byte(`{"ociVersion":"1","process":`+process+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(process), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{base, "--root", "/run/runc", "create", "--bundle", bundle, "c1"}
	for range 2 { // a repeated create finds the link
		got, err := prepare(args)
		if err != nil || !cmp.Equal(got, args[1:]) {
			t.Errorf("create: got %q, %v, want unchanged arguments", got, err)
		}
		if text, err := os.ReadFile(config); err != nil || string(text) != `{"ociVersion":"1","process":`+want+`}` {
			t.Errorf("the bundle's config: %s, %v", text, err)
		}
		if to, err := os.Readlink(config); err != nil || to != filepath.Join(base, "c1", "config.json") {
			t.Errorf("the link's target is %s (%v), want a path below %s", to, err, base)
		}
	}
	got, err := prepare([]string{base, "exec", "--process", other, "--detach", "c1"})
	if err != nil || len(got) != 5 || got[2] == other {
		t.Fatalf("exec: got %q, %v, want another file", got, err)
	}
	if text, err := os.ReadFile(got[2]); err != nil || string(text) != want {
		t.Errorf("the command's config: %s, %v", text, err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != process {
		t.Errorf("the original file was changed to %s (%v)", text, err)
	}
}

// TestRuncIsRefused checks that invalid arguments and files cause an error that does not contain a
// secret.
func TestRuncIsRefused(t *testing.T) {
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "c1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "c1", variables), []byte(`["B=hunter2"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{}, {base}, {base, "create"}, {base, "create", "--bundle", base, "c2"}, {base, "create", "--bundle", base, "../c1"}, {base, "create", "--bundle", base, "c1"},
	} {
		if _, err := prepare(args); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v, want an error without the value", args, err)
		}
	}
}

// TestDirectoriesArePrivate checks that secrets are never written to a directory that other users
// can read or have created.
func TestDirectoriesArePrivate(t *testing.T) {
	for name, make := range map[string]func(base string) error{
		"a directory of another user": func(base string) error { return os.Mkdir(base, 0o777) },
		"a link":                      func(base string) error { return os.Symlink(t.TempDir(), base) },
		"a file":                      func(base string) error { return os.WriteFile(base, nil, 0o600) },
	} {
		base := filepath.Join(t.TempDir(), "bourse")
		if err := make(base); err != nil {
			t.Fatal(err)
		}
		if name == "a directory of another user" { // regardless of the umask
			if err := os.Chmod(base, 0o777); err != nil { //nolint:gosec // the test case requires it
				t.Fatal(err)
			}
		}
		if err := makePrivate(base, filepath.Join(base, "c1")); err == nil {
			t.Errorf("%s: secrets would be written to it", name)
		}
	}
	base := filepath.Join(t.TempDir(), "bourse")
	for range 2 {
		if err := makePrivate(base, filepath.Join(base, "c1")); err != nil {
			t.Errorf("a directory of our own: %v", err)
		}
	}
}

// TestWrapper checks that the script quotes the words of its command, which may contain any
// character.
func TestWrapper(t *testing.T) {
	dir := t.TempDir()
	path, err := Wrapper(dir, []string{"/opt/it's $HOME/bourse", "runc"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `exec '/opt/it'\''s $HOME/bourse' 'runc' '/`) {
		t.Errorf("%v:\n%s", err, text)
	}
	if again, err := Wrapper(dir, []string{"/usr/bin/bourse", "runc"}); err != nil || again != path {
		t.Errorf("script for another program: got %s, %v, want path %s", again, err, path)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files are %q, want one", left)
	}
}
