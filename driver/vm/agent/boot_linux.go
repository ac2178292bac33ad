package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// mountKernel mounts the kernel's virtual file systems, such as /proc, below root.
func mountKernel(root string) error {
	for _, m := range []struct {
		target, kind, data string
		flags              uintptr
	}{
		{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/dev", "devtmpfs", "mode=755", unix.MS_NOSUID},
		{"/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"/sys/fs/cgroup", "cgroup2", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		target := root + m.target
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		link := root + "/dev/" + name
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return nil
}

// loadModules loads all kernel modules in a directory. The kernel rejects a module whose dependencies are not loaded
// yet, so loadModules retries the rejected modules until none of them can be loaded. It then prints the errors of the
// remaining modules and returns nil, because not every kernel needs every module.
func loadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for {
		var refused []os.DirEntry
		var reasons error
		for _, e := range entries {
			if err := loadModule(filepath.Join(dir, e.Name())); err != nil {
				refused = append(refused, e)
				reasons = errors.Join(reasons, fmt.Errorf("load module %s: %w", e.Name(), err))
			}
		}
		if len(refused) == len(entries) || len(refused) == 0 {
			if reasons != nil {
				fmt.Fprintln(os.Stderr, "bourse:", reasons)
			}
			return nil
		}
		entries = refused
	}
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if filepath.Ext(path) != ".ko" {
		const compressed = 4 // MODULE_INIT_COMPRESSED_FILE
		flags = compressed
	}
	if err := unix.FinitModule(int(f.Fd()), "", flags); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// boot sets up the guest: its root file system, name, network and limits.
func boot(b *session.Boot) error {
	if err := addEntropy(b.Entropy); err != nil {
		return fmt.Errorf("seed random numbers: %w", err)
	}
	if err := setRoot(b); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(b.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	limit := unix.Rlimit{Cur: b.OpenFiles[0], Max: b.OpenFiles[1]}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit open files: %w", err)
	}
	return setNetwork(b)
}

// limitProcesses creates a cgroup with a process limit, and returns its open directory.
func limitProcesses(limit int) (*os.File, error) {
	const root, group = "/sys/fs/cgroup", "/sys/fs/cgroup/programs"
	if err := os.WriteFile(root+"/cgroup.subtree_control", []byte("+pids"), 0); err != nil {
		return nil, fmt.Errorf("limit processes: %w", err)
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(group+"/pids.max", []byte(strconv.Itoa(limit)), 0); err != nil {
		return nil, fmt.Errorf("limit processes: %w", err)
	}
	return os.Open(group)
}

// addEntropy adds random bytes from the host to the kernel's entropy pool, and credits them as entropy.
func addEntropy(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	request := binary.NativeEndian.AppendUint32(nil, uint32(8*len(seed)))
	request = append(binary.NativeEndian.AppendUint32(request, uint32(len(seed))), seed...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&request[0]))); errno != 0 {
		return errno
	}
	return nil
}

// resumed sets the clock and reseeds the random number generator after the guest has been restored from a snapshot.
func resumed(r *session.Resumed) error {
	now := unix.NsecToTimespec(r.Time.UnixNano())
	err := os.NewSyscallError("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &now))
	if err := errors.Join(err, addEntropy(r.Entropy)); err != nil {
		return err
	}
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("RNDRESEEDCRNG", unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0)) // so that the new seed takes effect at once
}

// setRoot mounts the image with a writable layer on top, makes the result this process's root file system, writes the
// machine's files, and mounts its volumes.
func setRoot(b *session.Boot) error {
	const root = "/root"
	for _, dir := range []string{"/image", "/scratch", root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("/dev/vda", "/image", "erofs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	if err := unix.Mount("/dev/vdb", "/scratch", "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount the scratch disk: %w", err)
	}
	for _, dir := range []string{"/scratch/upper", "/scratch/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/image,upperdir=/scratch/upper,workdir=/scratch/work"); err != nil {
		return fmt.Errorf("mount the root file system: %w", err)
	}
	for _, dir := range []string{"/scratch", "/image"} { // detach them; the overlay keeps using them
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := mountKernel(root); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root file system: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root file system: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// As in a container, a volume hides the image's files and the machine's ordinary files below its mount point. It
	// does not hide the in-memory files, because they are written after the volumes have been mounted.
	inMemory := func(f session.File) bool { return f.Memory }
	if err := writeFiles(slices.DeleteFunc(slices.Clone(b.Files), inMemory)); err != nil {
		return err
	}
	if err := mountVolumes(b.Volumes); err != nil {
		return err
	}
	if err := writeFiles(slices.DeleteFunc(slices.Clone(b.Files), func(f session.File) bool { return !f.Memory })); err != nil {
		return err
	}
	if !b.ReadOnly {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the root file system read-only: %w", err)
	}
	return nil
}

// writeFiles writes the machine's files, replacing existing files and links.
func writeFiles(files []session.File) error {
	const memory = "/dev/.bourse"
	for i, f := range files {
		name := path.Clean("/" + f.Path)
		if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fileError(f, err)
		}
		if info, err := os.Lstat(name); err == nil && info.IsDir() {
			return orderError(fmt.Sprintf("file %q cannot be written: it is a directory", f.Path))
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fileError(f, err)
		}
		target := name
		if f.Memory {
			if err := os.MkdirAll(memory, 0o700); err != nil {
				return err
			}
			target = filepath.Join(memory, strconv.Itoa(i))
		}
		if err := os.WriteFile(target, f.Data, 0o600); err != nil {
			return fileError(f, err)
		}
		if err := unix.Chmod(target, f.Mode&0o7777); err != nil {
			return fileError(f, err)
		}
		if !f.Memory {
			continue
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return fileError(f, err)
		}
		if err := unix.Mount(target, name, "", unix.MS_BIND, ""); err != nil {
			return fileError(f, err)
		}
		if err := unix.Mount("", name, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fileError(f, err)
		}
	}
	return nil
}

func fileError(f session.File, err error) error {
	return orderError(fmt.Sprintf("file %q cannot be written: %v", f.Path, err))
}

// setNetwork sets up the loopback interface and eth0.
func setNetwork(b *session.Boot) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for name, value := range map[string]string{
		"ipv4/ip_unprivileged_port_start": "0", "ipv4/ping_group_range": "0 2147483647", "ipv6/conf/default/accept_ra": "0", "ipv6/conf/all/accept_ra": "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if len(b.Addresses) == 0 {
		return nil
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	if err := netlink.LinkSetMTU(eth0, b.MTU); err != nil {
		return fmt.Errorf("set the MTU: %w", err)
	}
	if err := netlink.LinkSetUp(eth0); err != nil {
		return fmt.Errorf("set eth0 up: %w", err)
	}
	for _, text := range b.Addresses {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if strings.Contains(text, ":") {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(eth0, addr); err != nil {
			return fmt.Errorf("add address %s: %w", text, err)
		}
	}
	for _, g := range b.Gateways {
		if err := addGateway(eth0, g); err != nil {
			return fmt.Errorf("add gateway %s: %w", g.Address, err)
		}
	}
	return nil
}

func addGateway(eth0 netlink.Link, g session.Gateway) error {
	mac, err := net.ParseMAC(g.MAC)
	if err != nil {
		return err
	}
	ip, bits, family := net.ParseIP(g.Address), 128, netlink.FAMILY_V6
	if ip.To4() != nil {
		ip, bits, family = ip.To4(), 32, netlink.FAMILY_V4
	}
	index := eth0.Attrs().Index
	neighbor := &netlink.Neigh{LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac}
	if err := netlink.NeighSet(neighbor); err != nil {
		return err
	}
	all := &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: index, Gw: ip, Flags: int(netlink.FLAG_ONLINK), Dst: all})
}
