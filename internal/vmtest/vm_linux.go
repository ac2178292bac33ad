package vmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Host contains the paths of the files on this host that virtual machines need.
type Host struct{ qemu, busybox, kernel string }

// Find locates the files. It skips the test if one of them is missing.
func Find(t *testing.T) Host {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the test kernel is only for x86-64")
	}
	h := Host{kernel: Cached(t, "vmlinuz", "scripts/need-kernel")}
	for name, to := range map[string]*string{"qemu-system-x86_64": &h.qemu, "busybox": &h.busybox} {
		var err error
		if *to, err = exec.LookPath(name); err != nil {
			t.Skipf("%v: run scripts/need-host to install it", err)
		}
	}
	return h
}

// Cached returns the path of a file in the user's cache. If the file is missing, it
// skips the test and names the script that creates the file.
func Cached(t testing.TB, name, script string) (path string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	path = filepath.Join(cache, "bourse", "linux", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: run %s", err, script)
	}
	return path
}

// Kernel returns the path of the machines' kernel.
func (h Host) Kernel() string { return h.kernel }

// Busybox returns the path of this host's busybox, which is statically linked.
func (h Host) Busybox() string { return h.busybox }

// Files maps paths in a machine's file system to paths on this host.
type Files map[string]string

// Programs adds programs of this host, with their shared libraries. It skips the test
// if a program is missing.
func (f Files) Programs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%v: run scripts/need-host to install it", err)
		}
		f["/bin/"+name] = path
		libraries, _ := exec.CommandContext(t.Context(), "ldd", path).Output() // fails if the program is statically linked
		for word := range strings.FieldsSeq(string(libraries)) {
			if filepath.IsAbs(word) {
				f[word] = word
			}
		}
	}
}

// Pack writes an initial file system with the given files and empty directories, and
// returns its path.
func (h Host) Pack(t *testing.T, f Files, empty ...string) (path string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range empty {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range f {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := copyFile(to, from); err != nil {
			t.Fatal(err)
		}
	}
	var list bytes.Buffer
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if relative, errRel := filepath.Rel(root, path); errRel == nil {
			fmt.Fprintln(&list, relative)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "initrd")
	cpio := exec.CommandContext(t.Context(), h.busybox, "cpio", "-o", "-H", "newc", "-F", path)
	cpio.Dir, cpio.Stdin = root, &list
	if out, err := cpio.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	return path
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Done is the line that a machine prints before it powers off.
const Done = "bourse-vm: done"

// Machine is a virtual machine with two processors, but without disks or networks.
type Machine struct {
	Initrd  string        // path of the initial file system, as written by Pack
	MiB     int           // size of the memory in MiB
	Options string        // additional options for the kernel
	Limit   time.Duration // maximum time until the machine powers off
}

// Boot runs a machine until it powers off, and returns its console output. It returns an error if
// qemu exits before that, or if the machine does not power off in time.
func (h Host) Boot(ctx context.Context, m Machine) (console string, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Limit)
	defer cancel()
	var out bytes.Buffer
	// The options panic=-1 and -no-reboot make qemu exit after a kernel panic.
	qemu := exec.CommandContext(ctx, h.qemu, "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(m.MiB),
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", h.kernel, "-initrd", m.Initrd,
		"-append", "console=ttyS0 loglevel=1 panic=-1 "+m.Options)
	qemu.Stdout, qemu.Stderr = &out, &out
	err = qemu.Run()
	console = strings.ReplaceAll(out.String(), "\r", "")
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("the machine did not power off within %s", m.Limit)
	case err == nil && !strings.Contains(console, "\n"+Done+"\n"):
		err = errors.New("the machine stopped before its tests were complete")
	}
	return console, err
}
