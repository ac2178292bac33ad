package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/network"
)

// sweepTimeout limits the duration of a sweep.
const sweepTimeout = 20 * time.Second

// sweepHost removes everything that a dev cluster's workers have left on the host, except files and
// host processes. It removes containerd's namespaces whose names begin with prefix, their shims, the
// mounts below dir, and the networks of the workers to which these mounts belong.
func sweepHost(ctx context.Context, socket, prefix, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	err := removeNamespaces(ctx, serve.ContainerdAddress(socket), prefix)
	container.EndShims(prefix) // only those that containerd has lost track of are still running
	mounts, errMounts := mountsBelow(dir)
	if len(mounts) == 0 {
		return errors.Join(err, errMounts)
	}
	err = errors.Join(err, clearNetworks(ctx, mounts))
	mounts, errMounts = mountsBelow(dir)
	for _, path := range slices.Backward(mounts) { // later mounts may be on top of earlier ones
		errMounts = errors.Join(errMounts, unix.Unmount(path, unix.MNT_DETACH))
	}
	return errors.Join(err, errMounts)
}

// clearNetworks removes the networks of the workers to which these mounts belong.
func clearNetworks(ctx context.Context, mounts []string) error {
	var errs []error
	seen := map[string]bool{}
	for _, path := range mounts {
		worker, _, ok := strings.Cut(path, "/network/")
		if !ok || seen[worker] {
			continue
		}
		seen[worker] = true
		n, err := network.Open(network.Config{Dir: filepath.Join(worker, "network"), PooledNamespaces: -1})
		if err == nil {
			err = errors.Join(n.Recover(ctx, nil), n.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mountsBelow returns the mount points below a directory, in the order in which they
// were mounted.
func mountsBelow(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	var out []string
	for _, m := range mounts {
		if m.Mountpoint != dir {
			out = append(out, m.Mountpoint)
		}
	}
	return out, err
}
