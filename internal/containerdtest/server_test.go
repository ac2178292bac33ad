package containerdtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestImageRuns imports an image and runs it with containerd's own client.
func TestImageRuns(t *testing.T) {
	s := Start(t)
	image := MustBuild(t, Busybox(t), ocispec.ImageConfig{Cmd: []string{"/bin/echo", "from", "the image"}})
	ref := s.Import(t, "test", "test.local/busybox", image)
	if again := s.Import(t, "test", "test.local/busybox", image); again != ref {
		t.Errorf("the second import: got %s, want %s", again, ref)
	}
	out, err := exec.Command("ctr", "--address", s.Address, "--namespace", "test", "run", "--rm", ref, "containerdtest").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "from the image" {
		t.Errorf("ctr run printed %q, %v", got, err)
	}
}

// TestLeftoversAreFound leaves a container behind and checks that it is reported.
func TestLeftoversAreFound(t *testing.T) {
	s := Start(t)
	ref := s.Import(t, "test", "test.local/busybox", MustBuild(t, Busybox(t), ocispec.ImageConfig{}))
	ctr := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ctr", append([]string{"--address", s.Address, "--namespace", "test"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ctr %v: %v: %s", args, err, out)
		}
	}
	ctr("run", "-d", ref, "containerdtest-left", "/bin/sleep", "1000")
	if got := strings.Join(s.Leftovers(), "\n"); !strings.Contains(got, "container containerdtest-left") ||
		!strings.Contains(got, "snapshot containerdtest-left") || !strings.Contains(got, "shim ") || !strings.Contains(got, "mount ") {
		t.Errorf("got leftovers %s, want a container, snapshot, shim and mount", got)
	}
	ctr("task", "rm", "-f", "containerdtest-left")
	ctr("container", "rm", "containerdtest-left")
	if got := s.Leftovers(); len(got) > 0 {
		t.Errorf("got leftovers %q after everything was removed, want none", got)
	}
}

// TestRestart kills and restarts a separate containerd.
func TestRestart(t *testing.T) {
	s := New(t)
	ref := s.Import(t, "test", "test.local/true", MustBuild(t, map[string]File{"/bin/x": {Data: []byte("x")}}, ocispec.ImageConfig{}))
	s.Kill(t)
	s.Restart(t)
	if _, err := s.Client(t, "test").ImageService().Get(t.Context(), ref); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
