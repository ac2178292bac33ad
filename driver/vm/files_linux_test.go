package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// TestHostileFiles replaces files in a machine's directory, as a program that has broken out of its guest could.
func TestHostileFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"started":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, plant := range map[string]func(path string) error{
		"a link to a file of the host": func(path string) error { return os.Symlink(secret, path) },
		"a FIFO that nobody writes to": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"an endless device":            func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory":                  func(path string) error { return os.Mkdir(path, 0o700) },
		"a huge file":                  func(path string) error { return errorsOf(write("{")(path), os.Truncate(path, 1<<40)) },
		"nothing":                      write(""),
		"no object":                    write("[]"),
	} {
		dir := t.TempDir()
		if err := plant(filepath.Join(dir, session.Status)); err != nil {
			t.Fatal(err)
		}
		if started, err := Started(dir); started || err == nil {
			t.Errorf("%s: started %t, %v, want an error", name, started, err)
		}
		if err := plant(within(dir, session.ExecErrorFile("exec-1"))); err != nil {
			t.Fatal(err)
		}
		if err := ExecError(dir, "exec-1"); err == nil {
			t.Errorf("%s instead of an exec's error: got no error, want one", name)
		}
	}

	dir := t.TempDir()
	if err := os.Symlink(secret, within(dir, session.ExecFile("exec-1"))); err != nil {
		t.Fatal(err)
	}
	if err := WriteExec(dir, "container", "exec-1", session.Program{Args: []string{"true"}}); err == nil {
		t.Error("an exec's program was written through a link")
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != `{"started":true}` {
		t.Errorf("the host's file is %q, %v", data, err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestReports checks how Started and ExecError interpret the agents' reports.
func TestReports(t *testing.T) {
	dir := t.TempDir()
	if started, err := Started(dir); started || err != nil {
		t.Errorf("without a report: started %t, %v", started, err)
	}
	if err := ExecError(dir, "exec-1"); err != nil {
		t.Errorf("without a report: %v", err)
	}
	for text, code := range map[string]bourse.Code{
		`{"started":true}`:                    "",
		`{"error":"no such","invalid":true}`:  bourse.CodeInvalid,
		`{"error":"the guest does not boot"}`: bourse.CodeInternal,
	} {
		if err := os.WriteFile(filepath.Join(dir, session.Status), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if started, err := Started(dir); started != (code == "") || code != "" && bourse.CodeOf(err) != code {
			t.Errorf("%s: started %t, %v", text, started, err)
		}
	}
}

// TestUsers checks that containers have different users, and that these are not used by programs on the host.
func TestUsers(t *testing.T) {
	a, b := userOf("a"), userOf("b")
	if a == b || a < 1<<30 || b < 1<<30 || a>>31 != 0 {
		t.Errorf("users %d and %d", a, b)
	}
}

// TestNewestKernel checks that version numbers in kernels' names are compared numerically.
func TestNewestKernel(t *testing.T) {
	if compareVersions("/boot/vmlinuz-6.1.0-9-cloud-amd64", "/boot/vmlinuz-6.1.0-56-cloud-amd64") >= 0 {
		t.Error("release 9 comes after release 56")
	}
}

// TestInitrd checks that the initial file system contains the agent, and the modules that exist under any of their names.
func TestInitrd(t *testing.T) {
	modules := t.TempDir()
	for _, name := range []string{"kernel/drivers/virtio/virtio.ko", "kernel/fs/erofs/erofs.ko.xz", "kernel/net/other.ko", "modules.dep"} {
		path := filepath.Join(modules, name)
		if err := errorsOf(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{cfg: Config{Agent: []byte("the agent")}, modules: modules}
	f, err := os.Create(filepath.Join(t.TempDir(), "initrd"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.writeInitrd(f); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the agent", "virtio.ko\x00", "erofs.ko.xz\x00"} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("the initial file system does not contain %q", strings.Trim(want, "\x00"))
		}
	}
	if bytes.Contains(data, []byte("other.ko")) {
		t.Error("the initial file system contains a module that the guest does not need")
	}
}
