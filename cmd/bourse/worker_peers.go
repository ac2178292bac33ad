package main

import (
	"context"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// peers are the other workers, as sources of volumes and snapshots.
type peers struct {
	fabric    fabric.Fabric
	directory *gossip.Directory
}

var _ volumes.Peers = peers{}

// Export implements volumes.Peers.
func (p peers) Export(ctx context.Context, tag bourse.WorkerTag, id, grant string, from volume.Position) (io.ReadCloser, error) {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	return fabric.VolumeExport.Open(ctx, p.fabric, to, fabric.Export{ID: id, Grant: grant, Moment: from.Moment, Offset: from.Offset}, nil)
}
