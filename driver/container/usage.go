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
	if d.statusOf(t).Exit != nil {
		return driver.Usage{}, errEnded(id)
	}
	return d.groups.usage(cgroupPath(d.layout.mark(), t.container)), nil
}

// usage reads what a cgroup's processes use.
func (g *cgroups) usage(path string) driver.Usage {
	g.find()
	file := func(controller, name string) string { return read(g.dir(controller, path), name) }
	if g.v2 != "" {
		return cgroup.UsageV2(func(name string) string { return file("", name) })
	}
	return cgroup.UsageV1(file)
}
