package container

import (
	"context"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// Usage implements driver.Driver.
func (d *Driver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	t, err := d.find(ctx, id)
	if err != nil {
		return driver.Usage{}, err
	}
	if d.tasks.status(t).Exit != nil {
		return driver.Usage{}, errEnded(id)
	}
	return d.groups.Usage(cgroup.PathOf(d.layout.mark(), t.container)), nil
}
