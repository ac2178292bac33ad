package cgroup2

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
	"strings"
	"testing"
	"time"
)

// parts contains the paths of the files that a virtual machine consists of.
type parts struct{ qemu, busybox, kernel, overlay string }

// find finds the parts on this host. It skips the test if one is missing.
func find(t *testing.T) parts {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the kernel for this test is for x86-64")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	var p parts
	for name, to := range map[string]*string{"qemu-system-x86_64": &p.qemu, "busybox": &p.busybox} {
		if *to, err = exec.LookPath(name); err != nil {
			t.Skipf("%v: scripts/need-host installs it", err)
		}
	}
	for name, to := range map[string]*string{"vmlinuz": &p.kernel, "overlay.ko": &p.overlay} {
		*to = filepath.Join(cache, "bourse", "linux", name)
		if _, err := os.Stat(*to); err != nil {
			t.Skipf("%v: scripts/need-kernel fetches it", err)
		}
	}
	return p
}

// files maps paths in the machine's file system to paths on this host.
type files map[string]string

// programs adds programs of this host and their shared libraries. It skips the test if one
// is missing.
func (f files) programs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%v: scripts/need-host installs it", err)
		}
		f["/bin/"+name] = path
		libraries, _ := exec.CommandContext(t.Context(), "ldd", path).Output() // fails if the program is static
		for word := range strings.FieldsSeq(string(libraries)) {
			if filepath.IsAbs(word) {
				f[word] = word
			}
		}
	}
}

// pack writes an initial file system with the given files and empty directories, and
// returns its path.
func (p parts) pack(t *testing.T, f files, empty ...string) (path string) {
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
	cpio := exec.CommandContext(t.Context(), p.busybox, "cpio", "-o", "-H", "newc", "-F", path)
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

// boot runs a virtual machine until it powers off, and returns its console output. It
// returns an error if the machine ends in another way or not in time.
func (p parts) boot(ctx context.Context, initrd string, limit time.Duration) (console string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out bytes.Buffer
	// The options panic=-1 and -no-reboot make the machine end after a kernel panic.
	qemu := exec.CommandContext(ctx, p.qemu, "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "1536",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", p.kernel, "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=1 panic=-1")
	qemu.Stdout, qemu.Stderr = &out, &out
	err = qemu.Run()
	console = strings.ReplaceAll(out.String(), "\r", "")
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("the machine has not ended after %s", limit)
	case err == nil && !strings.Contains(console, "\nbourse-vm: done\n"):
		err = errors.New("the machine ended before its tests did")
	}
	return console, err
}
