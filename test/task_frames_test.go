package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// documentedProgram writes the example program from the documentation to a file and returns
// its path.
func documentedProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "tasks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- program -->\n```python\n")
	program, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("docs/tasks.md has no program marked <!-- program -->")
	}
	if lines := strings.Count(program, "\n"); lines > 40 {
		t.Errorf("the example program has %d lines, want at most 30", lines)
	}
	path := filepath.Join(t.TempDir(), "sort.py")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDocumentedPythonProgram runs the example program in the documentation unchanged. It must answer many payloads
// concurrently, also after the worker was killed.
func TestDocumentedPythonProgram(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed on this host")
	}
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	worker, _ := newWorker(t, "w-gru", "gru", "--resource", "slots=10", "--join", broker.Addr)
	startAll(t, worker)
	worker.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "both servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	create(t, api, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: "host", Init: bourse.Init{Cmd: []string{python, documentedProgram(t)}},
		Task: &bourse.TaskConfig{Name: "sort", Concurrency: 8, Protocol: bourse.TaskFrames},
	}})
	sort := func(payload string) (machinesapi.TaskReply, error) {
		return api.RunTask(t.Context(), app, machinesapi.RunTask{
			Task: "sort", PayloadBase64: []byte(payload), Requirements: bourse.Requirements{"slots": {Count: 1}}, Timeout: bourse.Duration(20 * time.Second),
		}, "")
	}
	// Retry, because a machine counts as started before its program listens.
	eventually(t, waitTimeout, "the program answers", func() error { _, err := sort("x\n"); return err })
	for range 2 {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 10 {
					if reply, err := sort("pear\napple\n"); err != nil || !reply.OK || string(reply.Answer) != `"apple\npear\n"` {
						t.Errorf("task sorted: %+v, answer %s, %v; want \"apple\\npear\\n\"", reply, reply.Answer, err)
					}
				}
			})
		}
		group.Wait()
		if err := worker.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		worker.Settle()
		eventually(t, waitTimeout, "the restarted worker answers", func() error { _, err := sort("x\n"); return err })
	}
}
