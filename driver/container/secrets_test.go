package container

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestSecrets checks that a container's program receives its secret variables, which override its environment, and its
// secret files. The same must be true of a command in the container, even if a later daemon runs it. Neither
// containerd's files nor the driver's may contain a secret, while the container is running or afterwards.
func TestSecrets(t *testing.T) {
	h := newHostOn(t, containerdtest.New(t), nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	value, inFile := rand.Text(), rand.Text()
	task := order(image, sh(`[ "$PASSWORD $PLAIN" = "`+"$(cat /etc/secret/key)"+` plain" ] || echo another; `+runScript)...)
	task.Env = []string{"PASSWORD=none", "PLAIN=plain"}
	task.Secrets = []string{"PASSWORD=" + value}
	task.Root.Files = []driver.File{
		{Path: "/etc/secret/key", Data: []byte(value), Mode: 0o440, Secret: true},
		{Path: "/etc/other", Data: []byte(inFile), Mode: 0o400, Secret: true},
	}
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	has := func(d *Driver) {
		t.Helper()
		out, err := d.Exec(t.Context(), task.ID, driver.Exec{Command: sh(`cat /proc/1/environ | tr '\0' '\n' | grep PASSWORD; echo "$PASSWORD $PLAIN"; stat -c %a /etc/secret/key; cat /etc/other; echo x > /etc/other && echo written`)})
		want := "PASSWORD=" + value + "\n" + value + " plain\n440\n" + inFile
		if err != nil || string(out.Stdout) != want {
			t.Errorf("a command in the container: got %v, %q %q, want %q", err, out.Stdout, out.Stderr, want)
		}
	}
	has(d)
	for _, dir := range []string{h.server.Dir, h.cfg.Dir} {
		if left := filesWith(t, dir, value, inFile); len(left) > 0 {
			t.Errorf("secrets were found in %q", left)
		}
	}
	d, found := h.recovered(t)
	if len(found) != 1 || found[0].Exit != nil {
		t.Fatalf("found %v, want the running task", found)
	}
	has(d)
	if err := d.Stop(t.Context(), task.ID, "SIGKILL", 0); err != nil {
		t.Error(err)
	}
	if exit, err := d.Wait(t.Context(), task.ID); err != nil || exit.Signal != 9 {
		t.Errorf("exit: %+v, %v", exit, err)
	}
	if err := d.DiscardExit(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
	if left := d.layout.secretTasks(); len(left) > 0 {
		t.Errorf("an ended task still has secrets: %v", left)
	}
	task.ID.Boot++ // as after a restart of the machine
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	has(d)
	if left := filesWith(t, h.server.Dir, value, inFile); len(left) > 0 {
		t.Errorf("secrets were found in %q", left)
	}
}

// TestSecretsOfAFailedStart checks that a failed start does not leave secrets behind, and that the error states why it
// failed.
func TestSecretsOfAFailedStart(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	task := order(image, "/bin/none-such")
	task.Secrets = []string{"PASSWORD=hunter2"}
	if _, err := d.Start(t.Context(), task); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "none-such") {
		t.Errorf("a missing program: got %v, want an invalid error with the program's name", err)
	}
	if left := d.layout.secretTasks(); len(left) > 0 {
		t.Errorf("secrets of %v were left behind", left)
	}
	task = order(image, sh(runScript)...)
	task.Secrets = []string{"PASSWORD=hunter2\x00"}
	if _, err := d.Start(t.Context(), task); bourse.CodeOf(err) != bourse.CodeInvalid || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an invalid secret: got %v, want an invalid error without the secret's value", err)
	}
}

// TestContainersEndWithoutTheDaemonsProgram checks that a container with secrets can be stopped and destroyed when the
// daemon's program file no longer exists. Only starts and execs need that file.
func TestContainersEndWithoutTheDaemonsProgram(t *testing.T) {
	h := newHost(t, func(c *Config) {
		self, err := os.ReadFile(c.Runc[0])
		if err != nil {
			t.Fatal(err)
		}
		c.Runc = []string{filepath.Join(t.TempDir(), "it's a program"), "runc"}
		if err := os.WriteFile(c.Runc[0], self, 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	})
	image := h.busybox(t)
	d, _ := h.recovered(t)
	task := order(image, sh(runScript)...)
	task.Secrets = []string{"PASSWORD=hunter2"}
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.cfg.Runc[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), task.ID, "SIGKILL", 0); err != nil {
		t.Error(err)
	}
	if err := d.Destroy(t.Context(), task.ID.Machine); err != nil {
		t.Error(err)
	}
	task = order(image, sh(runScript)...)
	task.Secrets = []string{"PASSWORD=hunter2"}
	if _, err := d.Start(t.Context(), task); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a start without the program: %v", err)
	}
}

// filesWith returns the regular files below dir that contain one of values.
func filesWith(t *testing.T, dir string, values ...string) []string {
	t.Helper()
	var out []string
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // files may appear and disappear during the search
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		files++
		if slices.ContainsFunc(values, func(v string) bool { return bytes.Contains(text, []byte(v)) }) {
			out = append(out, path)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("searched %d files below %s: %v", files, dir, err)
	}
	return out
}
