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

// labelPull of a lease is the name of the image whose pull it is, with its tag.
const labelPull = "bourse.dev/pull"

// labelOrg of a lease is the organisation that the pull is for.
const labelOrg = "bourse.dev/org"

// A lease that is not removed ends by itself after leaseTime. One that has less
// than leaseRest left is not used for another attempt: a pull must not lose its
// content to the garbage collection half-way.
const (
	leaseTime = 24 * time.Hour
	leaseRest = 6 * time.Hour
)

const labelExpire = "containerd.io/gc.expire"

// leaseOf names the lease of an image's pull.
func leaseOf(ref bourse.ImageRef) leases.Lease {
	sum := sha256.Sum256([]byte(recordName(ref)))
	return leases.Lease{ID: "bourse-pull-" + hex.EncodeToString(sum[:16])}
}

// takeLease writes the intent to pull an image and returns a context in which
// everything that is fetched belongs to it.
func (s *Store) takeLease(ctx context.Context, c *containerd.Client, p *pull) (context.Context, error) {
	leave, err := s.leasing.pass(ctx)
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
		p.again = true
		if len(old) == 1 && lasts(old[0], time.Now()) {
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

// lasts reports whether a lease is valid long enough for another attempt.
func lasts(lease leases.Lease, now time.Time) bool {
	end, err := time.Parse(time.RFC3339, lease.Labels[labelExpire])
	return err == nil && end.Sub(now) >= leaseRest
}

// dropLease removes what a pull has fetched and no image has: at once, when
// collect is set, or when containerd collects next.
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

// dropKept removes what a failed pull has kept, unless it was started again.
func (s *Store) dropKept(ctx context.Context, c *containerd.Client, ref bourse.ImageRef) error {
	leave, err := s.leasing.pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	name := recordName(ref)
	s.mu.Lock()
	_, again := s.memory.pulls[name]
	delete(s.memory.kept, name)
	s.mu.Unlock()
	if again {
		return nil // it takes, or has, the lease
	}
	return dropLease(ctx, c, ref, true)
}

// settling bounds the removal of what a pull leaves.
const settling = time.Minute

// settle removes what an ended pull does not leave for a retry. When containerd
// is away the lease stays, and is looked at when it is back.
func (s *Store) settle(ctx context.Context, p *pull) {
	if p.keeps() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	ctx, c, err := s.containerd(ctx)
	if err == nil {
		// An earlier attempt that was killed may have left more than the image.
		err = dropLease(ctx, c, p.ref, p.err != nil || p.again)
	}
	if err == nil && p.err != nil && diskFull(p.err) {
		err = sweep(ctx, c, s.config.Snapshotter)
	}
	if err != nil {
		s.config.Log.Warn("pull's lease not removed", "image", p.ref.String(), "err", err)
	}
}

// leased is a pull that has a lease.
type leased struct {
	ref bourse.ImageRef
	org string
}

// underWay finds the images whose pulls have a lease.
func underWay(ctx context.Context, c *containerd.Client) ([]leased, error) {
	list, err := c.LeasesService().List(ctx, `labels."`+labelPull+`"`)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	var out []leased
	for _, lease := range list {
		ref, err := parseName(lease.Labels[labelPull])
		if err != nil || leaseOf(ref).ID != lease.ID {
			continue // another program's
		}
		out = append(out, leased{ref, lease.Labels[labelOrg]})
	}
	return out, nil
}
