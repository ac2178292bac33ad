package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
)

// labelPull is the lease label that contains the name of the image being pulled, including its tag.
const labelPull = "bourse.dev/pull"

// labelOrg is the lease label that contains the organization whose credentials the pull uses.
const labelOrg = "bourse.dev/org"

// A lease expires leaseTime after its creation. A lease that expires in less than minLeaseTime is not reused for
// another attempt, because its data could be garbage-collected during the pull.
const (
	leaseTime    = 24 * time.Hour
	minLeaseTime = 6 * time.Hour
)

const labelExpire = "containerd.io/gc.expire"

// leaseOf returns the lease for pulling an image. Only its ID is set.
func leaseOf(ref bourse.ImageRef) leases.Lease {
	sum := sha256.Sum256([]byte(recordName(ref)))
	return leases.Lease{ID: "bourse-pull-" + hex.EncodeToString(sum[:16])}
}

// takeLease records the intent to pull an image by creating a lease, or by reusing the lease of an earlier attempt.
// containerd adds all data that is fetched with the returned context to the lease.
func (s *Store) takeLease(ctx context.Context, c *containerd.Client, p *pull) (context.Context, error) {
	leave, err := s.leaseLock.acquire(ctx)
	if err != nil {
		return ctx, err
	}
	defer leave()
	manager := c.LeasesService()
	lease := leaseOf(p.ref)
	create := func() error {
		_, err := manager.Create(ctx, leases.WithID(lease.ID), leases.WithExpiration(leaseTime), leases.WithLabels(map[string]string{labelPull: p.ref.String(), labelOrg: p.org}))
		return err
	}
	err = create()
	if errdefs.IsAlreadyExists(err) {
		var old []leases.Lease
		if old, err = manager.List(ctx, "id=="+lease.ID); err != nil {
			return ctx, fmt.Errorf("lease: %w", err)
		}
		p.resumed = true
		if len(old) == 1 && validForRetry(old[0], time.Now()) {
			return leases.WithLease(ctx, lease.ID), nil
		}
		if err := manager.Delete(ctx, lease, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
			return ctx, fmt.Errorf("lease: %w", err)
		}
		err = create()
	}
	if err != nil {
		return ctx, fmt.Errorf("lease: %w", err)
	}
	return leases.WithLease(ctx, lease.ID), nil
}

// validForRetry reports whether a lease will remain valid long enough for another attempt.
func validForRetry(lease leases.Lease, now time.Time) bool {
	end, err := time.Parse(time.RFC3339, lease.Labels[labelExpire])
	return err == nil && end.Sub(now) >= minLeaseTime
}

// dropLease removes a pull's lease. Fetched data that is not part of an image is then removed: immediately if
// collect is set, and otherwise by containerd's next garbage collection.
func dropLease(ctx context.Context, c *containerd.Client, ref bourse.ImageRef, collect bool) error {
	var opts []leases.DeleteOpt
	if collect {
		opts = append(opts, leases.SynchronousDelete)
	}
	if err := c.LeasesService().Delete(ctx, leaseOf(ref), opts...); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("lease: %w", err)
	}
	return nil
}

// dropKept removes the data of a failed pull, unless another pull of the image is in progress.
func (s *Store) dropKept(ctx context.Context, c *containerd.Client, ref bourse.ImageRef) error {
	leave, err := s.leaseLock.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	name := recordName(ref)
	s.mu.Lock()
	_, again := s.memory.pulls[name]
	delete(s.memory.leftovers, name)
	s.mu.Unlock()
	if again {
		return nil // the new pull uses the lease
	}
	return dropLease(ctx, c, ref, true)
}

// settlingTime is the time limit for settle.
const settlingTime = time.Minute

// settle removes a finished pull's lease and leftover data, unless they are kept for a retry. If containerd is
// unavailable, they are removed later.
func (s *Store) settle(ctx context.Context, p *pull) {
	if p.keepsData() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settlingTime)
	defer cancel()
	ctx, c, err := s.containerd(ctx)
	if err == nil {
		// An earlier attempt that was killed may have left data that is not part of the image.
		err = dropLease(ctx, c, p.ref, p.err != nil || p.resumed)
	}
	if err == nil && p.err != nil && diskFull(p.err) {
		err = sweep(ctx, c, s.config.Snapshotter)
	}
	if err != nil {
		s.config.Log.Warn("remove pull lease failed", "image", p.ref.String(), "err", err)
	}
}

// leased describes a pull that has a lease.
type leased struct {
	ref bourse.ImageRef
	org string
}

// activePulls returns all pulls that have a lease, including those of an earlier daemon.
func activePulls(ctx context.Context, c *containerd.Client) ([]leased, error) {
	list, err := c.LeasesService().List(ctx, `labels."`+labelPull+`"`)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	var out []leased
	for _, lease := range list {
		ref, err := parseName(lease.Labels[labelPull])
		if err != nil || leaseOf(ref).ID != lease.ID {
			continue // another program's lease
		}
		out = append(out, leased{ref, lease.Labels[labelOrg]})
	}
	return out, nil
}
