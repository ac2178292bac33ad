package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/machinesapi"
)

const vmMemory bourse.MiB = 256

// benchVM measures how long it takes to create and start a virtual machine through the API, divided
// by the time that qemu alone needs to boot the same kernel to a shell. It also measures how long
// it takes to suspend and to resume a machine, each divided by the time to create and start it, and
// how much memory a machine needs in addition to its guest's memory.
func benchVM(ctx context.Context, lab *Lab, out Figures) error {
	return withTB(ctx, lab, func(tb testing.TB) error {
		kernel, err := cachedKernel()
		if err != nil {
			return err
		}
		host, err := vm.New(vm.Config{Kernel: kernel, Agent: []byte("unused")}) // only to learn whether it uses KVM
		if err != nil {
			return err
		}
		initrd, err := shellInitrd(lab.dir)
		if err != nil {
			return err
		}
		containerd, registry := containerdtest.New(tb), registrytest.Start(tb, registrytest.Options{})
		image := registry.Push(tb, "busybox:1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(tb)}}).Ref()
		client, workers, err := lab.market(ctx, []string{"gru"}, "--registry-private", "--containerd", containerd.Address, "--containerd-namespace", "bench",
			"--vm-kernel", kernel, "--vm-emulation")
		if err != nil {
			return err
		}
		tb.Cleanup(workers[0].stop) // the worker must stop before its containerd
		var boot, suspend, resume, floor samples
		for i := range 8 {
			if i == 1 {
				boot, suspend, resume, floor = nil, nil, nil, nil // discard the first round, in which the image's disk was created
			}
			var m machinesapi.CreatedMachine
			err := boot.measure(func() (err error) {
				m, err = client.Create(ctx, app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
					Image: image, Runtime: bourse.RuntimeVM, Guest: &bourse.Guest{MemoryMB: vmMemory, CPUs: 1}, Init: bourse.Init{Cmd: sleeper},
				}}, "")
				return err
			})
			if err != nil {
				return err
			}
			if out["vm_overhead_mib"], err = overhead(ctx, workers[0], m.ID); err != nil {
				return err
			}
			if err := suspend.measure(func() error { return client.Suspend(ctx, app, m.ID, "") }); err != nil {
				return err
			}
			if err := resume.measure(func() error { _, err := client.Start(ctx, app, m.ID, ""); return err }); err != nil {
				return err
			}
			if err := destroy(ctx, client, m.ID); err != nil {
				return err
			}
			if err := bootBare(ctx, host.KVM() == nil, kernel, initrd, &floor); err != nil {
				return err
			}
		}
		out["vm_boot_ms"], out["floor_vm_boot_ms"] = boot.median(), floor.median()
		out["vm_boot_ratio"] = boot.median() / floor.median()
		out["vm_suspend_ratio"], out["vm_resume_ratio"] = suspend.median()/boot.median(), resume.median()/boot.median()
		return nil
	})
}

// cachedKernel returns the path of the kernel that scripts/need-kernel downloaded.
func cachedKernel() (string, error) {
	cache, err := os.UserCacheDir()
	path := filepath.Join(cache, "bourse", "linux", "vmlinuz")
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
}

const shellReady = "the shell is ready"

// shellInitrd writes an initial file system whose first program is a shell that prints shellReady.
func shellInitrd(dir string) (path string, err error) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(dir, "initrd"))
	if err != nil {
		return "", err
	}
	w := cpio.NewWriter(f)
	for name, data := range map[string][]byte{
		"busybox": busybox,
		"init":    []byte("#!/busybox sh\n/busybox echo " + shellReady + "\n/busybox sleep 1000\n"),
	} {
		err = cmp.Or(err, w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | 0o755, Size: int64(len(data))}))
		if err == nil {
			_, err = w.Write(data)
		}
	}
	return f.Name(), errors.Join(err, w.Close(), f.Close())
}

// bootBare starts qemu without Bourse, and adds the time until the shell is ready to the samples in
// took.
func bootBare(ctx context.Context, kvm bool, kernel, initrd string, took *samples) error {
	accel, cpu := "tcg", "max"
	if kvm {
		accel, cpu = "kvm", "host"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "pc,accel="+accel, "-cpu", cpu, "-m", strconv.Itoa(int(vmMemory)),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet loglevel=3 panic=-1 random.trust_cpu=on no_timer_check")
	console, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	err = took.measure(func() error {
		if err := qemu.Start(); err != nil {
			return err
		}
		for lines := bufio.NewScanner(console); lines.Scan(); {
			if strings.Contains(lines.Text(), shellReady) {
				return nil
			}
		}
		return errors.New("qemu exited before the shell was ready")
	})
	if qemu.Process != nil {
		cancel()
		_ = qemu.Wait() // it was killed
	}
	return err
}

// overhead returns how much anonymous memory a machine's agent and qemu use, in MiB. It does not
// count the guest's memory or, with emulation, the translated code.
func overhead(ctx context.Context, worker *Server, id bourse.MachineID) (float64, error) {
	started, err := startedOn(ctx, worker)
	if err != nil {
		return 0, err
	}
	pid := strconv.Itoa(started[id].PID)
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		return 0, err
	}
	total := 0
	for _, pid := range append(strings.Fields(string(children)), pid) {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "smaps"))
		if err != nil {
			return 0, err
		}
		ofGuest, translated := false, false
		for line := range strings.Lines(string(text)) {
			var name string
			var kib int
			_, _ = fmt.Sscanf(line, "%s %d kB", &name, &kib) // the first line of a mapping differs
			switch name {
			default:
				if fields := strings.Fields(line); len(fields) > 1 && strings.Contains(fields[0], "-") {
					translated = strings.HasPrefix(fields[1], "rwx")
				}
			case "Size:":
				ofGuest = kib == int(vmMemory)<<10
			case "Anonymous:":
				if !ofGuest && !translated {
					total += kib
				}
			}
		}
	}
	return float64(total) / 1024, nil
}
