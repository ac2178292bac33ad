package container

import (
	"context"
	"maps"
	"slices"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse/driver"
)

var _ driver.Finder = (*Driver)(nil)

// Found implements driver.Finder. It lists the tasks whose objects in containerd belong to this
// driver's directory, even if the directory itself is empty.
func (d *Driver) Found(ctx context.Context) ([]driver.TaskID, error) {
	if err := d.lockDir(ctx); err != nil {
		return nil, err
	}
	var out []driver.TaskID
	err := d.withClient(ctx, func(ctx context.Context, c *containerd.Client) error {
		found, err := d.findObjects(ctx, c)
		if err == nil {
			out = slices.AppendSeq(slices.Collect(maps.Keys(found.containers)), maps.Keys(found.tasks))
		}
		return err
	})
	return out, err
}
