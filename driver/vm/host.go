package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Config configures a Host.
type Config struct {
	Dir    string // for the images' disks and the guests' initial file system; created if missing
	Kernel string // the guests' kernel; default: the newest /boot/vmlinuz-*
	Agent  []byte // default: the agent in this program
	// AllowEmulation allows emulation for all machines, even if their orders do not allow it.
	AllowEmulation bool
}

// Host runs virtual machines on this host. It is safe for concurrent use.
type Host struct {
	cfg     Config
	modules string // directory with the kernel's modules
	qemu    string
	once    func() error // writes the files that all machines share
	disks   singleflight.Group

	mu    sync.Mutex // held by KVM, which sets tried and noKVM
	tried bool       // whether noKVM contains the result of tryKVM
	noKVM error
}

// New returns a Host. If this host cannot run virtual machines, New returns CodeFailedPrecondition, with a list of
// everything that is missing. It does not change anything on the host.
func New(cfg Config) (*Host, error) {
	var missing []string
	if cfg.Agent == nil {
		cfg.Agent = embedded()
	}
	if len(cfg.Agent) == 0 {
		missing = append(missing, "a program built with make build")
	}
	h := &Host{cfg: cfg}
	for _, program := range []string{emulator(), "mkfs.erofs", "mkfs.ext4"} {
		path, err := lookPath(program)
		if err != nil {
			missing = append(missing, program)
		} else if h.qemu == "" {
			h.qemu = path
		}
	}
	if kernels, _ := filepath.Glob("/boot/vmlinuz-*"); h.cfg.Kernel == "" && len(kernels) > 0 {
		h.cfg.Kernel = slices.MaxFunc(kernels, compareKernels)
	}
	h.modules = modulesOf(h.cfg.Kernel)
	switch {
	case h.cfg.Kernel == "":
		missing = append(missing, "a kernel in /boot")
	case !exists(h.cfg.Kernel):
		missing = append(missing, h.cfg.Kernel)
	case !exists(h.modules):
		missing = append(missing, h.modules)
	}
	if len(missing) > 0 {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "virtual machines require %s", strings.Join(missing, ", "))
	}
	h.once = sync.OnceValue(h.prepare)
	return h, nil
}

// modulesOf returns the directory of a kernel's modules: the directory "modules" next to the kernel, if it exists, and
// otherwise the directory in /lib/modules for the kernel's release.
func modulesOf(kernel string) string {
	if beside := filepath.Join(filepath.Dir(kernel), "modules"); exists(beside) {
		return beside
	}
	return filepath.Join("/lib/modules", strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-"))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// emulator returns the name of the qemu program for this host's architecture.
func emulator() string {
	if runtime.GOARCH == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// lookPath is like exec.LookPath, but also searches /usr/sbin and /sbin, which may be missing from a daemon's $PATH.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, program))
		}
	}
	return path, err
}

// compareKernels orders kernels by release, oldest first. If two kernels have the same release, the one built for
// virtual machines comes last.
func compareKernels(a, b string) int {
	forMachines := func(s string) int { return strings.Count(s, "cloud") + strings.Count(s, "virtual") }
	return cmp.Or(compareVersions(a, b), cmp.Compare(forMachines(a), forMachines(b)))
}

// compareVersions orders file names by the numbers in them.
func compareVersions(a, b string) int {
	numbers := func(s string) (out []int) {
		for _, field := range strings.FieldsFunc(filepath.Base(s), func(r rune) bool { return r < '0' || r > '9' }) {
			n := 0
			_, _ = fmt.Sscan(field, &n) // digits only; a number that overflows is 0
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b))
}

// Labels returns the driver labels for virtual machines on this host. They specify whether qemu uses KVM or emulation,
// and whether machines may be emulated even if their orders do not allow it.
func (h *Host) Labels() map[string]string {
	out := map[string]string{driver.LabelVM: driver.Accelerated}
	if h.KVM() != nil {
		out[driver.LabelVM] = driver.Emulated
	}
	if h.cfg.AllowEmulation {
		out[driver.LabelVMEmulation] = "allowed"
	}
	return out
}

// KVM returns nil if virtual machines use KVM. Otherwise, qemu emulates them, and KVM returns an error that explains
// why.
func (h *Host) KVM() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tried {
		return h.noKVM
	}
	ctx, cancel := context.WithTimeout(context.Background(), kvmLimit)
	defer cancel()
	err := h.tryKVM(ctx)
	if ctx.Err() != nil { // the host was too busy; the next call will try again
		return err
	}
	h.tried, h.noKVM = true, err
	return err
}

const kvmDevice = "/dev/kvm"

// kvmLimit is the time limit for tryKVM.
const kvmLimit = 10 * time.Second

// tryKVM makes qemu create a machine with KVM, without running it. This is necessary because on some hosts, especially
// virtual machines, /dev/kvm exists but does not work with qemu.
func (h *Host) tryKVM(ctx context.Context) error {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_ = f.Close() // nothing was written
	machine, _ := platform()
	probe := exec.CommandContext(ctx, h.qemu, "-machine", machine+",accel=kvm", "-cpu", "host", "-nodefaults", "-display", "none", "-S", "-monitor", "stdio")
	probe.Stdin, probe.WaitDelay = strings.NewReader("quit\n"), time.Second
	if out, err := probe.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu cannot use %s: %w: %s", kvmDevice, err, lastLine(out))
	}
	return nil
}

func lastLine(out []byte) string {
	out = bytes.TrimSpace(out)
	return string(out[bytes.LastIndexByte(out, '\n')+1:])
}

// The files in Config.Dir.
func (h *Host) agent() string  { return filepath.Join(h.cfg.Dir, "agent") }
func (h *Host) kernel() string { return filepath.Join(h.cfg.Dir, "kernel") }
func (h *Host) initrd() string { return filepath.Join(h.cfg.Dir, "initrd") }
func (h *Host) root() string   { return filepath.Join(h.cfg.Dir, "root") }
func (h *Host) disk(image string) string {
	return filepath.Join(h.cfg.Dir, "images", strings.ReplaceAll(image, ":", "-")+".erofs")
}

// prepare writes the files that all machines share. Machines that are already running keep using the previous versions.
func (h *Host) prepare() error {
	for _, dir := range []string{h.cfg.Dir, filepath.Join(h.cfg.Dir, "images")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	unfinished, _ := filepath.Glob(filepath.Join(h.cfg.Dir, "images", "new-*"))
	for _, path := range unfinished {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	kernel, err := os.ReadFile(h.cfg.Kernel) // a copy, because an upgrade may remove the kernel, and not every user may read it
	if err != nil {
		return err
	}
	if err := replace(h.kernel(), 0o444, func(f *os.File) error { _, err := f.Write(kernel); return err }); err != nil {
		return err
	}
	if err := replace(h.agent(), 0o555, func(f *os.File) error { _, err := f.Write(h.cfg.Agent); return err }); err != nil {
		return err
	}
	if err := replace(h.initrd(), 0o444, h.writeInitrd); err != nil {
		return err
	}
	return makeSkeleton(h.root())
}

// replace writes a file, atomically replacing an existing one. Programs that have opened the old file keep reading the
// old contents. Even if the host crashes, the file is never incomplete.
func replace(path string, mode os.FileMode, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// diskTimeout is the time limit for creating an image's disk.
const diskTimeout = 15 * time.Minute

// Disk returns the path of an image's disk. If the disk does not exist, Disk calls mount, creates the disk from the
// root file system that mount has mounted at dir, and calls unmount. If ctx is done first, the creation continues in
// the background, and the next call waits for it.
func (h *Host) Disk(ctx context.Context, image string, mount func(context.Context) (dir string, unmount func() error, err error)) (string, error) {
	if err := h.once(); err != nil {
		return "", err
	}
	path := h.disk(image)
	if exists(path) {
		return path, nil
	}
	done := h.disks.DoChan(image, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diskTimeout)
		defer cancel()
		dir, unmount, err := mount(ctx)
		if err != nil {
			return nil, err
		}
		err = replace(path, 0o444, func(f *os.File) error {
			return runTool(ctx, "mkfs.erofs", "-d0", f.Name(), dir)
		})
		return nil, errors.Join(err, unmount())
	})
	select {
	case r := <-done:
		return path, r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// RemoveDisks removes the disks of all images for which keep returns false. Machines that use a removed disk are not
// affected.
func (h *Host) RemoveDisks(keep func(image string) bool) error {
	paths, err := filepath.Glob(h.disk("*"))
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".erofs")
		if !keep(strings.Replace(name, "-", ":", 1)) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// runTool runs a program. If the program fails, the error contains its output.
func runTool(ctx context.Context, program string, args ...string) error {
	path, err := lookPath(program)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
