package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/loopback"
)

// Program is the path of the program while [Main] runs.
var Program string

// Main builds the program, runs m's tests and returns the exit status. Use it in
// TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
//
// When the test process exits, all processes that the tests started are killed, even if the test process was itself
// killed.
func Main(m *testing.M) int {
	if guarded() {
		return 0
	}
	dir, err := os.MkdirTemp("", "bourse-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // machines that run as other users also execute the program in it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Keep the tests' loopback credentials separate from those of this user's other servers.
	end, err := startGuard(dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the guard: %v\n", err)
		return 1
	}
	defer func() { _ = end() }()
	if err := os.Setenv(loopback.Variable, runtimeOf(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Program = filepath.Join(dir, "bourse")
	build := exec.Command("go", "build", "-o", Program, "github.com/bourse-dev/bourse/cmd/bourse") //nolint:noctx // there is no context
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// BuildWithAgent builds the program like "make build", so that it can run virtual machines, and returns its path.
func BuildWithAgent(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "bourse")
	module, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		tb.Fatal(err)
	}
	for _, command := range [][]string{
		{filepath.Join(strings.TrimSpace(string(module)), "scripts", "build-agent")},
		{"go", "build", "-o", path, "github.com/bourse-dev/bourse/cmd/bourse"},
	} {
		if out, err := exec.CommandContext(tb.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			tb.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return path
}
