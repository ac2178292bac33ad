package servertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Change replaces one piece of the program's source code.
type Change struct {
	File     string // path from the module's root
	Old, New string // Old must occur exactly once
}

// BuildChanged builds the program with changes to its source, for example to make a server
// send wrong data, and returns its path.
func BuildChanged(tb testing.TB, changes ...Change) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		tb.Fatalf("find the module: %v", err)
	}
	root, dir := strings.TrimSpace(string(out)), tb.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, c := range changes {
		name := filepath.Join(root, c.File)
		copied := filepath.Join(dir, strings.ReplaceAll(c.File, "/", "_"))
		from := name
		if overlay.Replace[name] != "" {
			from = copied
		}
		text, err := os.ReadFile(from)
		if err != nil {
			tb.Fatal(err)
		}
		if n := strings.Count(string(text), c.Old); n != 1 {
			tb.Fatalf("%s contains %q %d times: adapt the change to the source", c.File, c.Old, n)
		}
		if err := os.WriteFile(copied, []byte(strings.Replace(string(text), c.Old, c.New, 1)), 0o600); err != nil {
			tb.Fatal(err)
		}
		overlay.Replace[name] = copied
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		tb.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "bourse")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	build := exec.CommandContext(tb.Context(), "go", "build", "-overlay", list, "-o", program, "github.com/bourse-dev/bourse/cmd/bourse")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the changed program: %v\n%s", err, out)
	}
	return program
}
