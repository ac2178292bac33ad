package vmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBootOfAFailingMachine checks that Boot returns an error and the console output if a machine's kernel panics or if
// the machine hangs.
func TestBootOfAFailingMachine(t *testing.T) {
	host := Find(t)
	for name, c := range map[string]struct {
		init  string
		limit time.Duration
		want  string
	}{
		// stty returns once the console has received all output. Without it, the
		// kernel's panic message would be mixed into the output.
		"panics": {"echo last words\n/bin/busybox stty sane\nexit 1\n", time.Minute, "stopped before"},
		"hangs":  {"echo last words\nexec /bin/busybox sleep 1000\n", 20 * time.Second, "did not power off within 20s"},
	} {
		init := filepath.Join(t.TempDir(), "init")
		if err := os.WriteFile(init, []byte("#!/bin/busybox sh\n"+c.init), 0o600); err != nil {
			t.Fatal(err)
		}
		initrd := host.Pack(t, Files{"/init": init, "/bin/busybox": host.Busybox()}, "dev")
		console, err := host.Boot(t.Context(), Machine{Initrd: initrd, MiB: 256, Limit: c.limit})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(console, "last words") {
			t.Errorf("a machine that %s returned %v; its console:\n%s", name, err, console)
		}
	}
}
