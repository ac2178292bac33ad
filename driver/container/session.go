package container

import (
	"context"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
)

// endExecs kills the execs that an earlier daemon started in a task, because their callers are gone.
func (d *Driver) endExecs(ctx context.Context, c *containerd.Client, t *task) {
	dirs, _ := filepath.Glob(filepath.Join(d.layout.task(t.id), execPrefix+"*"))
	for _, dir := range dirs {
		x := &execution{Driver: d, c: c, task: t, id: filepath.Base(dir)}
		x.clear(ctx, dir)
	}
}
