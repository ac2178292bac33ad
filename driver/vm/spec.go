package vm

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// Machine is a virtual machine to start.
type Machine struct {
	Container string      // the container's id
	Spec      *specs.Spec // the ordinary container for the task; the program, host name, cgroup and limits are taken from it
	Task      driver.Task
	Files     []driver.File // in addition to the task's
	Disk      string        // the image's disk
	Dir       string        // directory for the machine's sockets, status and execs
	Scratch   string        // directory for the scratch disk
}

const (
	defaultMemory bourse.MiB = 512      // for a machine whose task has no memory limit
	maxScratch               = 16 << 30 // bytes; the disk takes only the space that the machine uses
)

// maxProcesses is the maximum number of processes and threads in a machine's container. They belong to qemu, to the
// agent, and to one more agent for each exec in progress.
const maxProcesses = 4096

// overhead is the memory that a machine's container may use for qemu and the agent, in addition to the guest's
// memory.
const overhead bourse.MiB = 192

// place makes a file or directory on the host (source) available at a path in a machine's container (target).
type place struct {
	source, target string
	writable       bool
}

const (
	agentFile   = "/vmm/agent"
	kernelFile  = "/vmm/kernel"
	initrdFile  = "/vmm/initrd"
	diskFile    = "/vmm/disk"
	scratchFile = "/vmm/scratch"
)

// Prepare creates the machine's directory, scratch disk and network device. It returns the specification of the
// machine's container, and the machine's configuration. The caller must write config to an in-memory file that only
// [User] can read, and add the file's [MachineMount] to the mounts of s.
func (h *Host) Prepare(ctx context.Context, m Machine) (s *specs.Spec, config []byte, err error) {
	if err := check(m.Task); err != nil {
		return nil, nil, err
	}
	user := userOf(m.Container)
	if err := errors.Join(os.RemoveAll(m.Dir), os.Mkdir(m.Dir, 0o700)); err != nil {
		return nil, nil, err
	}
	if err := os.Chown(m.Dir, int(user), int(user)); err != nil {
		return nil, nil, err
	}
	scratch, err := makeScratch(ctx, m.Scratch, user)
	if err != nil {
		return nil, nil, err
	}
	boot := session.Boot{
		Hostname: m.Spec.Hostname, ReadOnly: m.Task.Root.ReadOnly, Files: filesOf(m), Entropy: make([]byte, 64),
		OpenFiles: [2]uint64{1024, 1 << 19}, Processes: m.Task.Limits.PIDs,
	}
	_, _ = rand.Read(boot.Entropy) // never fails
	command := h.command(m.Task)
	volumes, err := findVolumes(m.Task.Mounts)
	if err != nil {
		return nil, nil, err
	}
	for i, mount := range m.Task.Mounts {
		command = append(command, volumeDisk(i)...)
		boot.Volumes = append(boot.Volumes, session.Volume{Serial: volumeName(i), Path: mount.Target})
	}
	if n := m.Task.Network; n != nil && n.Namespace != "" {
		device, err := addTap(n.Namespace, user)
		if err != nil {
			return nil, nil, err
		}
		boot.Addresses, boot.MTU, boot.Gateways = device.addresses, device.mtu, device.gateways
		command = append(command, "-netdev", "tap,id=net,ifname="+tapName+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,romfile=,mac="+device.mac)
	}
	p := m.Spec.Process
	config, err = json.Marshal(session.Machine{VMM: command, MaxSnapshot: maxSnapshot(m.Task.Limits), Devices: sequencesOf(volumes), Program: session.Program{
		Args: p.Args, Terminal: p.Terminal, Stdin: p.Terminal || len(m.Task.Stdin) > 0,
		First: &session.First{Boot: boot, Env: p.Env, Dir: p.Cwd, MakeDir: m.Task.Dir == "", UID: p.User.UID, GID: p.User.GID, Groups: p.User.AdditionalGids},
	}})
	if err != nil {
		return nil, nil, err
	}
	s, err = h.specOf(ctx, m, user, []place{
		{h.agent(), agentFile, false},
		{h.kernel(), kernelFile, false},
		{h.initrd(), initrdFile, false},
		{m.Disk, diskFile, false},
		{scratch, scratchFile, true},
		{m.Dir, session.Dir, true},
	})
	if err != nil {
		return nil, nil, err
	}
	addVolumes(s, volumes)
	return s, config, nil
}

// check returns CodeInvalid if the task requires something that virtual machines do not support.
func check(task driver.Task) error {
	switch {
	case len(task.Mounts) > maxVolumes:
		return bourse.Errorf(bourse.CodeInvalid, "the virtual machine has %d volumes; the maximum is %d", len(task.Mounts), maxVolumes)
	case len(task.Devices) > 0:
		return bourse.Errorf(bourse.CodeInvalid, "virtual machines do not support GPUs or other devices")
	}
	return nil
}

// User returns the numeric id of the user and group of a machine's container. Only this user and root can read the
// machine's files.
func User(container string) int { return int(userOf(container)) }

// userOf derives a container's user id from the container's id. Other containers and programs on the host do not
// normally have this user id.
func userOf(container string) uint32 {
	const first, count = 1 << 30, 1 << 29
	sum := sha256.Sum256([]byte(container))
	return first + binary.BigEndian.Uint32(sum[:])%count
}

// ScratchDisk is the name of a machine's scratch disk in its scratch directory.
const ScratchDisk = "disk"

// makeScratch creates a disk with an empty file system in dir, and returns its path.
func makeScratch(ctx context.Context, dir string, user uint32) (string, error) {
	path := filepath.Join(dir, ScratchDisk)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // a disk that an earlier boot left; remove it first to free its space
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("scratch directory: %w", err)
	}
	const reserved = 16 // 1/reserved of the space is for the file's own metadata
	size := min(fs.Bavail*uint64(fs.Bsize)/reserved*(reserved-1), maxScratch)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(f.Truncate(int64(size)), f.Chown(int(user), int(user)), f.Close()); err != nil {
		return "", err
	}
	return path, runTool(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", path)
}

func filesOf(m Machine) []session.File {
	var out []session.File
	for _, f := range append(m.Files, m.Task.Root.Files...) {
		out = append(out, session.File{Path: f.Path, Data: f.Data, Mode: f.Mode, Memory: f.Secret})
	}
	return out
}

// command returns qemu's command line, without network devices and volumes.
func (h *Host) command(task driver.Task) []string {
	machine, console := platform()
	accel, cpu := "tcg", "max"
	if h.KVM() == nil {
		accel, cpu = "kvm", "host"
	}
	disk := func(id, file, options string) []string {
		return []string{
			"-drive", "if=none,format=raw,file.locking=off,werror=report,rerror=report,id=" + id + ",file=" + file + options,
			"-device", "virtio-blk-pci,drive=" + id,
		}
	}
	args := []string{
		h.qemu, "-machine", machine + ",accel=" + accel, "-cpu", cpu, "-smp", strconv.Itoa(processors(task.Limits)), "-m", strconv.FormatInt(int64(memory(task.Limits)), 10),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", kernelFile, "-initrd", initrdFile, "-append", "console=" + console + " quiet loglevel=3 panic=-1 random.trust_cpu=on no_timer_check",
		"-device", "virtio-serial-pci,max_ports=2", "-chardev", fmt.Sprintf("socket,id=host,fd=%d", session.GuestFD), "-device", "virtserialport,nr=1,chardev=host,name=bourse",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", session.MonitorFD), "-mon", "chardev=monitor,mode=control",
	}
	args = append(args, disk("image", diskFile, ",readonly=on")...)
	return append(args, disk("scratch", scratchFile, ",cache=unsafe,discard=unmap")...)
}

// platform returns qemu's machine type for this host's architecture, and the guest's name for its console.
func platform() (machine, console string) {
	if runtime.GOARCH == "arm64" {
		return "virt", "ttyAMA0"
	}
	return "pc", "ttyS0"
}

// memory returns the size of the guest's memory for a task with limits l.
func memory(l driver.Limits) bourse.MiB {
	return max(cmp.Or(l.Memory, defaultMemory), bourse.MinVMMemory)
}

// maxSnapshot returns the maximum size of a snapshot in bytes. A snapshot contains the guest's memory, with a
// header for each page, and the state of its devices.
func maxSnapshot(l driver.Limits) int64 {
	const devices = 16 << 20
	size := int64(memory(l)) << 20
	return size + size/100 + devices
}

// processors returns the guest's number of processors for a task with limits l. The guest never has more processors
// than the host.
func processors(l driver.Limits) int {
	const whole = 1000
	return max(1, min(int((max(l.CPUQuota, l.CPUWeight)+whole-1)/whole), runtime.NumCPU()))
}

// specOf returns the specification of a machine's container.
func (h *Host) specOf(ctx context.Context, m Machine, user uint32, places []place) (*specs.Spec, error) {
	record := &containers.Container{ID: m.Container}
	s, err := oci.GenerateSpecWithPlatform(ctx, nil, "linux/"+runtime.GOARCH, record, oci.WithoutRunMount)
	if err != nil {
		return nil, err
	}
	s.Root = &specs.Root{Path: h.root(), Readonly: true}
	s.Hostname = m.Spec.Hostname
	s.Process = &specs.Process{
		Args: []string{agentFile, "run"}, Cwd: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Terminal: m.Spec.Process.Terminal,
		User: specs.User{UID: user, GID: user}, NoNewPrivileges: true, Capabilities: &specs.LinuxCapabilities{}, Rlimits: m.Spec.Process.Rlimits,
	}
	s.Linux.CgroupsPath = m.Spec.Linux.CgroupsPath
	setResources(s, m.Spec.Linux.Resources, m.Task.Limits)
	if n := m.Task.Network; n != nil && n.Namespace != "" {
		for i, ns := range s.Linux.Namespaces {
			if ns.Type == specs.NetworkNamespace {
				s.Linux.Namespaces[i].Path = n.Namespace
			}
		}
	}
	for _, name := range hostDirs {
		if info, err := os.Lstat("/" + name); err == nil && info.IsDir() {
			places = append(places, place{"/" + name, "/" + name, false})
		}
	}
	if _, err := os.Stat(libraryCache); err == nil {
		places = append(places, place{libraryCache, libraryCache, false})
	}
	for _, p := range places {
		options := []string{"rbind", "rprivate", "nosuid", "nodev", "ro"}
		if p.writable {
			options[len(options)-1] = "rw"
		}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: p.target, Type: "bind", Source: p.source, Options: options})
	}
	s.Linux.Seccomp = seccomp.DefaultProfile(s)
	restrict(s.Linux.Seccomp)
	return s, nil
}

// setResources sets the limits and devices of a machine's container. inner contains the limits of the task's
// ordinary container.
func setResources(s *specs.Spec, inner *specs.LinuxResources, l driver.Limits) {
	r := s.Linux.Resources
	r.CPU = inner.CPU
	r.Pids = &specs.LinuxPids{Limit: new(int64(maxProcesses))}
	limit := int64(memory(l)+overhead) << 20
	r.Memory = &specs.LinuxMemory{Limit: &limit}
	if inner.Memory != nil && inner.Memory.Swap != nil {
		r.Memory.Swap = &limit
	}
	for _, path := range []string{kvmDevice, "/dev/net/tun"} {
		major, minor, ok := deviceNumbers(path)
		if !ok {
			continue
		}
		mode, id := os.FileMode(0o600), s.Process.User.UID
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: path, Type: "c", Major: major, Minor: minor, FileMode: &mode, UID: &id, GID: &id})
		r.Devices = append(r.Devices, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rw"})
	}
}

// hostDirs lists the host's directories that contain programs and libraries. Some of them may be links.
var hostDirs = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

const libraryCache = "/etc/ld.so.cache"

// makeSkeleton creates the root file system for all machines' containers. It contains only links and mount points.
func makeSkeleton(root string) error {
	for _, dir := range []string{"dev", "proc", "sys", "etc", session.Dir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{agentFile, kernelFile, initrdFile, diskFile, scratchFile, session.MachineFile, libraryCache} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			return err
		}
	}
	for _, name := range hostDirs {
		path := filepath.Join(root, name)
		target, err := os.Readlink("/" + name)
		if err == nil {
			err = os.Symlink(target, path)
		} else if _, statErr := os.Stat("/" + name); statErr == nil {
			err = os.Mkdir(path, 0o755)
		} else {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// MachineMount returns a read-only bind mount of the machine configuration file at path.
func MachineMount(path string) specs.Mount {
	return specs.Mount{Destination: session.MachineFile, Type: "bind", Source: path, Options: []string{"bind", "rprivate", "nodev", "nosuid", "ro"}}
}
