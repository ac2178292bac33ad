package gateway

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/driver/pull"
)

// TestScript checks that a job's script runs its command with exactly the job's arguments
// and variables, whatever they contain.
func TestScript(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("this host has no sh")
	}
	for _, word := range []string{
		"plain", "", " ", "a'b", "$(touch /nowhere)", "`id`", "a\nb", "\\", "\"", "'; exit 9; '", "é漢", "-n", "*", "# job x", "~",
	} {
		dir := t.TempDir()
		text := script(&pull.Job{
			Name: "job", Dir: dir, Env: []string{"WORD=" + word, "BAD-NAME=x", "1BAD=x", "=x", "PATH=" + os.Getenv("PATH")},
			Command: []string{"sh", "-c", `printf '%s|%s|' "$1" "$WORD"; pwd -P`, "sh", word},
		})
		if !strings.HasPrefix(text, "# job job\n") {
			t.Fatalf("the script begins with %.20q", text)
		}
		file := filepath.Join(t.TempDir(), "job")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "sh", file).CombinedOutput()
		there, _ := filepath.EvalSymlinks(dir)
		if want := word + "|" + word + "|" + there + "\n"; err != nil || string(out) != want {
			t.Errorf("word %q: %v, got %q, want %q", word, err, out, want)
		}
	}
}

func TestReadTail(t *testing.T) {
	text := strings.Repeat("0123456789", pull.MaxOutput/2) + "end"
	for _, n := range []int{0, 1, pull.MaxOutput, pull.MaxOutput + 1, len(text)} {
		in := text[len(text)-n:]
		got, err := readTail(strings.NewReader(in))
		if want := in[max(0, n-pull.MaxOutput):]; err != nil || string(got) != want {
			t.Errorf("of %d bytes %d were kept (%v), want the last %d", n, len(got), err, len(want))
		}
	}
}
