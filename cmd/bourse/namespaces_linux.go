package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// removeNamespaces removes containerd's namespaces whose names begin with prefix, and
// their content. It does nothing if address is "" or if containerd is not running.
func removeNamespaces(ctx context.Context, address, prefix string) error {
	if address == "" {
		return nil
	}
	c, err := containerd.New(address, containerd.WithTimeout(2*time.Second))
	if err != nil {
		return nil // containerd is not running
	}
	defer c.Close()
	names, err := c.NamespaceService().List(ctx)
	if err != nil {
		return fmt.Errorf("list containerd's namespaces: %w", err)
	}
	var errs []error
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if err := emptyNamespace(namespaces.WithNamespace(ctx, name), c); err != nil {
			errs = append(errs, fmt.Errorf("containerd's namespace %s: %w", name, err))
			continue
		}
		if err := c.NamespaceService().Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove containerd's namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// emptyNamespace removes a namespace's containers and images, and aborts its unfinished pulls. It
// then deletes the remaining leases and content.
func emptyNamespace(ctx context.Context, c *containerd.Client) error {
	containers, err := c.Containers(ctx)
	if err != nil {
		return err
	}
	for _, one := range containers {
		if task, err := one.Task(ctx, nil); err == nil {
			if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
				return err
			}
		}
		if err := gone(one.Delete(ctx, containerd.WithSnapshotCleanup)); err != nil {
			return err
		}
	}
	list, err := c.ImageService().List(ctx)
	if err != nil {
		return err
	}
	for _, image := range list {
		if err := gone(c.ImageService().Delete(ctx, image.Name)); err != nil {
			return err
		}
	}
	pulls, err := c.ContentStore().ListStatuses(ctx)
	if err != nil {
		return err
	}
	for _, pull := range pulls {
		if err := gone(c.ContentStore().Abort(ctx, pull.Ref)); err != nil {
			return err
		}
	}
	return collect(ctx, c)
}

// collect deletes all leases and the remaining content. It deletes the last lease synchronously, so
// that containerd collects unprotected content before it answers.
func collect(ctx context.Context, c *containerd.Client) error {
	held, err := c.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	last, err := c.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		return err
	}
	for _, lease := range held {
		if err := gone(c.LeasesService().Delete(ctx, lease)); err != nil {
			return err
		}
	}
	if err := c.LeasesService().Delete(ctx, last, leases.SynchronousDelete); err != nil {
		return err
	}
	return c.ContentStore().Walk(ctx, func(info content.Info) error {
		return gone(c.ContentStore().Delete(ctx, info.Digest))
	})
}

// gone returns nil if err means that the object to be removed does not exist. Otherwise, it
// returns err.
func gone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
