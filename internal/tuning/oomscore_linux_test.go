package tuning

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

func read(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Children that are forked concurrently have the original score. After all forks, the process has
// its own score again.
func TestChildrenDoNotInherit(t *testing.T) {
	// Any process may lower a score that it has raised before.
	const base = "200"
	before := read(t)
	if !set(base) {
		t.Skip("this process cannot change OOM scores")
	}
	t.Cleanup(func() {
		process.protected = false
		if !set(before) {
			t.Error("the score is not restored")
		}
	})
	ProtectFromOOM(100)
	if !process.protected {
		t.Fatal("the score cannot be lowered")
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c := exec.Command("cat", path)
			var out strings.Builder
			c.Stdout = &out
			var err error
			ForkUnprotected(func() { err = c.Start() })
			if err == nil {
				err = c.Wait()
			}
			if got := strings.TrimSpace(out.String()); err != nil || got != base {
				t.Errorf("a child has the score %q (%v), want %q", got, err, base)
			}
		})
	}
	wg.Wait()
	if got := read(t); got != "100" {
		t.Errorf("the process has the score %s after its forks, want 100", got)
	}
}
