package container

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/vm"
)

// prepare creates a container's snapshot and returns the mounts of its root file system. A label protects the snapshot
// from containerd's garbage collector, because the container that will refer to it does not exist yet.
func (d *Driver) prepare(ctx context.Context, c *containerd.Client, task driver.Task, image *imageInfo) ([]mount.Mount, error) {
	service := c.SnapshotService(d.cfg.Snapshotter)
	mounts, err := d.snapshot(ctx, service, task, image)
	if cleaner, ok := service.(snapshots.Cleaner); ok && err != nil && bourse.CodeOf(withCode(ctx, err)) == bourse.CodeInternal && !errdefs.IsAlreadyExists(err) && !errdefs.IsNotFound(err) {
		// If containerd was killed while it was creating a snapshot, the leftover directory makes further attempts to
		// create that snapshot fail until Cleanup is called.
		if cleaner.Cleanup(ctx) == nil {
			return d.snapshot(ctx, service, task, image)
		}
	}
	return mounts, err
}

func (d *Driver) snapshot(ctx context.Context, service snapshots.Snapshotter, task driver.Task, image *imageInfo) ([]mount.Mount, error) {
	labels := snapshots.WithLabels(map[string]string{
		labelMark: d.layout.mark(), "containerd.io/gc.root": time.Now().UTC().Format(time.RFC3339),
	})
	key := d.layout.container(task.ID)
	if task.Root.Scratch == "" {
		mounts, err := service.Prepare(ctx, key, image.chain, labels)
		return mounts, toErrdefs(err)
	}
	mounts, err := service.View(ctx, key, image.chain, labels)
	if err != nil {
		return nil, toErrdefs(err)
	}
	if mounts, err = overlayOn(mounts, task.Root.Scratch); err != nil {
		return nil, err
	}
	return mounts, makeScratch(task.Root.Scratch)
}

// Subdirectories of a task's scratch directory.
const (
	scratchUpper = "upper"
	scratchWork  = "work"
)

// makeScratch creates the directories of an overlay mount in dir. It first removes the files of an earlier
// boot, because every boot starts from the unchanged image.
func makeScratch(dir string) error {
	if err := clearScratch(dir); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(filepath.Join(dir, scratchUpper), 0o755), os.Mkdir(filepath.Join(dir, scratchWork), 0o755))
}

func clearScratch(dir string) error {
	if dir == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, scratchUpper)), os.RemoveAll(filepath.Join(dir, scratchWork)), os.RemoveAll(filepath.Join(dir, vm.ScratchDisk)))
}

// overlayOn converts a read-only snapshot's mount to an overlay mount that stores changes in a scratch
// directory.
func overlayOn(view []mount.Mount, scratch string) ([]mount.Mount, error) {
	errCannot := bourse.Errorf(bourse.CodeInvalid, "this host's snapshotter does not support scratch directories")
	if len(view) != 1 || strings.ContainsAny(scratch, ":,\\") {
		return nil, errCannot
	}
	options := []string{
		"upperdir=" + filepath.Join(scratch, scratchUpper), "workdir=" + filepath.Join(scratch, scratchWork),
	}
	switch m := view[0]; m.Type {
	case "bind": // the image has a single layer
		options = append(options, "lowerdir="+m.Source)
	case "overlay":
		if slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "upperdir=") }) {
			return nil, errCannot
		}
		options = append(options, slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "ro" })...)
	default:
		return nil, errCannot
	}
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: options}}, nil
}

// writeFiles writes the order's files, except secret ones, into a root file system. It also checks that the
// order's working directory exists, because a runtime would create a missing directory. It mounts the file
// system only if necessary.
func (d *Driver) writeFiles(task driver.Task, root []mount.Mount) (err error) {
	dir := task.Dir
	if isMounted(dir, task.Mounts) {
		dir = ""
	}
	files := slices.DeleteFunc(slices.Clone(task.Root.Files), func(f driver.File) bool { return f.Secret })
	if len(files) == 0 && dir == "" {
		return nil
	}
	target := d.layout.mount(task.ID)
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount(target)) }()
	if err := mount.All(root, target); err != nil {
		return err
	}
	for _, f := range files {
		if err := writeFile(target, f); err != nil {
			return err
		}
	}
	if dir != "" && !isDir(target, dir) {
		return bourse.Errorf(bourse.CodeInvalid, "directory %s is not in the image", bourse.Quoted(dir))
	}
	return nil
}

// isMounted reports whether dir is the root directory, a mount's target, or a directory below such a target. Such a
// directory does not have to exist in the image.
func isMounted(dir string, mounts []driver.Mount) bool {
	dir = path.Clean("/" + dir)
	return dir == "/" || slices.ContainsFunc(mounts, func(m driver.Mount) bool {
		target := path.Clean(m.Target)
		return dir == target || strings.HasPrefix(dir, target+"/")
	})
}

// unmount removes the mount at target, if there is one, and then the directory target. The mount may be a leftover of
// an earlier daemon.
func unmount(target string) error {
	return errors.Join(mount.UnmountAll(target, 0), os.Remove(target))
}
