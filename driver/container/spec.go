package container

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// specOf returns the specification of a container for the runtime: containerd's defaults, overridden by the image's
// settings and then by the order's. root contains the mounts of the container's root file system, which is used to
// look up users.
func (d *Driver) specOf(ctx context.Context, task driver.Task, image *imageInfo, root []mount.Mount) (*specs.Spec, error) {
	command, err := commandOf(task, image.config)
	if err != nil {
		return nil, err
	}
	id := d.layout.container(task.ID)
	record := &containers.Container{ID: id, Snapshotter: d.cfg.Snapshotter, SnapshotKey: id}
	// containerd's default tmpfs on /run would hide the image's files there.
	s, err := oci.GenerateSpecWithPlatform(ctx, nil, "linux/"+runtime.GOARCH, record, oci.WithoutRunMount)
	if err != nil {
		return nil, err
	}
	s.Root.Readonly = task.Root.ReadOnly
	s.Hostname = string(task.ID.Machine)
	p := s.Process
	p.Args = command
	p.Env = envOf(image.config.Env, task.Env)
	p.Cwd = cmp.Or(task.Dir, image.config.WorkingDir, "/")
	if !strings.HasPrefix(p.Cwd, "/") {
		p.Cwd = "/" + p.Cwd
	}
	if p.Terminal = task.TTY; p.Terminal && !slices.ContainsFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
		p.Env = append(p.Env, "TERM=xterm")
	}
	p.Rlimits = []specs.POSIXRlimit{openFiles()}
	if err := setUser(ctx, s, cmp.Or(task.User, image.config.User), record, root); err != nil {
		return nil, err
	}
	d.setGroups(s, task.Limits, id)
	setMounts(s, task.Mounts)
	setNetwork(s, task.Network, d.layout.task(task.ID))
	if err := injectDevices(d.cfg.Devices, s, task.Devices); err != nil {
		return nil, err
	}
	// Add the seccomp profile last, because it depends on the capabilities.
	return s, seccomp.WithDefaultProfile()(ctx, nil, record, s)
}

// openFiles returns a container's limit on open files. The soft limit is low, because old programs that use select
// do not support higher file descriptors. The hard limit is high enough for large servers, but not higher than this
// process's own limit, which even root cannot exceed in some environments.
func openFiles() specs.POSIXRlimit {
	l := specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 1 << 19}
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil {
		l.Hard = min(l.Hard, own.Max)
	}
	l.Soft = min(l.Soft, l.Hard)
	return l
}

// setGroups sets the container's cgroup and limits.
func (d *Driver) setGroups(s *specs.Spec, l driver.Limits, container string) {
	devices := s.Linux.Resources.Devices
	s.Linux.CgroupsPath = cgroup.PathOf(d.layout.mark(), container)
	s.Linux.Resources = resourcesOf(l, d.groups.Swap())
	s.Linux.Resources.Devices = devices
}

// setMounts adds the order's mounts. Programs cannot use device nodes in the mounted directories.
func setMounts(s *specs.Spec, list []driver.Mount) {
	for _, m := range list {
		options := []string{"rbind", "rprivate", "nodev", "rw"}
		if m.ReadOnly {
			options[3] = "ro"
		}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source, Options: options})
	}
}

// setUser sets the program's user. user has the form "user[:group]". Its parts are names or numbers, which are looked
// up in the root file system's /etc/passwd and /etc/group.
func setUser(ctx context.Context, s *specs.Spec, user string, record *containers.Container, root []mount.Mount) error {
	client := rootOf{mounts: root}
	if user != "" {
		if err := oci.WithUser(user)(ctx, client, record, s); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "user %s is not in the image: %w", bourse.Quoted(user), err)
		}
	}
	uid := strconv.FormatUint(uint64(s.Process.User.UID), 10)
	if err := oci.WithAdditionalGIDs(uid)(ctx, client, record, s); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "groups of user %s: %w", bourse.Quoted(cmp.Or(user, "root")), err)
	}
	return nil
}

// rootOf is the client that containerd's spec options use to look up users. It provides access to only one root file
// system.
type rootOf struct {
	snapshots.Snapshotter
	mounts []mount.Mount
}

var _ oci.Client = rootOf{}

// SnapshotService implements oci.Client.
func (r rootOf) SnapshotService(string) snapshots.Snapshotter { return r }

// Mounts implements snapshots.Snapshotter, whose other methods are not called.
func (r rootOf) Mounts(context.Context, string) ([]mount.Mount, error) { return r.mounts, nil }
