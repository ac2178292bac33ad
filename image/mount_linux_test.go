package image_test

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// mount mounts a snapshot for reading until the test ends.
func (h *host) mount(tb testing.TB, chain string) string {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	sn := h.client.SnapshotService("overlayfs")
	key := "view-" + h.namespace
	// Without this label, the snapshot would be garbage-collected, because nothing refers to it.
	root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "of a test"})
	mounts, err := sn.View(ctx, key, chain, root)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := mount.All(mounts, dir); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := mount.UnmountAll(dir, 0); err != nil {
			tb.Error(err)
		}
		if err := sn.Remove(ctx, key); err != nil {
			tb.Error(err)
		}
	})
	return dir
}
