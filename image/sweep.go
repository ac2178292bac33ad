package image

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
)

// sweep frees the disk space of layers that containerd has removed but whose files still exist. This happens if the
// disk is full, because the snapshotter then cannot record the removal in its own database. containerd does not retry
// the removal until another snapshot is removed, so sweep creates and removes an empty snapshot.
func sweep(ctx context.Context, c *containerd.Client, snapshotter string) error {
	manager := c.LeasesService()
	lease, err := manager.Create(ctx, leases.WithRandomID(), leases.WithExpiration(settlingTime))
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	_, err = c.SnapshotService(snapshotter).Prepare(leases.WithLease(ctx, lease.ID), "bourse-sweep-"+lease.ID, "")
	if failed := manager.Delete(ctx, lease, leases.SynchronousDelete); err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("sweep of %s: %w", snapshotter, err)
	}
	return nil
}
