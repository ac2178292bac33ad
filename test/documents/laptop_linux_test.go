package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestReadme types the commands in the README in two terminals of a laptop, followed by
// Ctrl-C.
func TestReadme(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	h := y.host("laptop", "10.0.0.1")
	first, second := h.first, y.another(h)
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	env, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(env))
	bin := filepath.Join(repository, "bin") // make build writes the program here; it is replaced by the test's program
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	first.must("mkdir bin && ln -s " + servertest.Program + " bin/bourse && mount --bind bin " + bin)
	for _, terminal := range []*terminal{first, second} {
		terminal.must("export GOCACHE=" + caches[0] + " GOMODCACHE=" + caches[1] + "; cd " + repository)
	}
	t.Cleanup(func() { _ = os.Remove("/tmp/increment") }) // may not exist

	p := y.player(map[string]*terminal{"laptop": first, "another": second})
	blocks := read(t, "README.md")
	p.play(blocks[:2])
	_, said := first.await("bourse dev", regexp.MustCompile(`(?s)(export BOURSE_API_TOKEN=\S+ ?"?[^"\n]*"?\)).*Ctrl-C`))
	p.token = said[1]
	p.play(blocks[2:])
	if said := first.must("kill -INT %1; wait %1"); !strings.Contains(said, "everything was removed") {
		t.Errorf("output after Ctrl-C: %q, want \"everything was removed\"", said)
	}
}

// TestPull types the commands in docs/pull.md.
func TestPull(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	h := y.host("gate", "10.0.0.1")
	h.first.must("ln -s " + servertest.Program + " /usr/local/bin/bourse")
	p := y.player(map[string]*terminal{"gate": h.first})
	p.play(read(t, "docs/pull.md"))
	h.first.must("kill $(jobs -p)")
}
