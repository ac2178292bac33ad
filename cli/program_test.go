package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCommandFor checks that suggested commands start with a name or path that works.
func TestCommandFor(t *testing.T) {
	dir := t.TempDir()
	here, other := filepath.Join(dir, "bourse"), filepath.Join(dir, "other")
	for _, file := range []string{here, other} {
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(file string) func(string) (string, error) {
		return func(string) (string, error) {
			if file == "" {
				return "", os.ErrNotExist
			}
			return file, nil
		}
	}
	for name, tt := range map[string]struct{ started, found, want string }{
		"by its name":                           {"bourse", here, "bourse"},
		"started by its path, not in PATH":      {here, "", here},
		"started by its path, but also in PATH": {here, here, "bourse"},
		"another program with the same name":    {here, other, here},
	} {
		if got := commandFor(tt.started, finds(tt.found)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestTyped(t *testing.T) {
	for in, want := range map[string]string{
		"bourse machine list":                     "bin/bourse machine list",
		"see: bourse app list, or bourse dev":     "see: bin/bourse app list, or bin/bourse dev",
		"for clients other than bourse":           "for clients other than bourse",
		"/usr/bin/bourse dev":                     "/usr/bin/bourse dev",
		`"bourse dev" is two processes`:           `"bourse dev" is two processes`,
		"Bourse is an exchange":                   "Bourse is an exchange",
		"  bourse dev  # a\n  bourse machine run": "  bin/bourse dev  # a\n  bin/bourse machine run",
	} {
		s := &Shell{Env: Env{Program: "bin/bourse"}}
		if got := s.WithProgramName(in); got != want {
			t.Errorf("WithProgramName(%q) = %q, want %q", in, got, want)
		}
	}
	if s := (&Shell{Env: Env{Program: "a$1/bourse"}}); s.WithProgramName("bourse dev") != "a$1/bourse dev" {
		t.Errorf("a path with a dollar sign: %q", s.WithProgramName("bourse dev"))
	}
}
