package wholefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse/internal/wholefile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, c := range []struct {
		text string
		mode fs.FileMode
	}{{"old, and longer", 0o600}, {"new", 0o644}} {
		if err := wholefile.Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err := errors.Join(err, statErr); err != nil || string(text) != c.text || info.Mode() != c.mode {
			t.Errorf("the file contains %q, mode %v, %v; want %q, %v", text, info.Mode(), err, c.text, c.mode)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(dir, "sub"), filepath.Join(dir, "missing", "file")} {
		if err := wholefile.Write(bad, []byte("x"), 0o600); err == nil {
			t.Errorf("writing %s succeeded, want an error", bad)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the directory contains %v, %v; want the file and its subdirectory", left, err)
	}
}
