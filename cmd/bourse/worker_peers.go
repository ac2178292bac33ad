package main

import (
	"context"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
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

// Source implements volumes.Peers.
func (p peers) Source(_ context.Context, tag bourse.WorkerTag, id, grant string) (volume.Source, error) {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	return &peer{fabric: p.fabric, to: to, export: fabric.Export{ID: id, Grant: grant}}, nil
}

// Release implements volumes.Peers.
func (p peers) Release(ctx context.Context, tag bourse.WorkerTag, id, grant string) error {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	_, err := fabric.VolumeRelease.Call(ctx, p.fabric, to, fabric.Export{ID: id, Grant: grant})
	return err
}

// peer is a volume or snapshot of another worker.
type peer struct {
	fabric fabric.Fabric
	to     bourse.Member
	export fabric.Export

	mu     sync.Mutex
	latest string // the id of the latest manifest
}

var _ volume.Source = (*peer)(nil)

// Manifest implements volume.Source. That of a volume is of one moment, under
// a name of its own.
func (p *peer) Manifest(ctx context.Context) (volume.Manifest, error) {
	var m volume.Manifest
	raw, err := fabric.VolumeExport.Call(ctx, p.fabric, p.to, p.export)
	if err != nil {
		return m, err
	}
	if err := codec.Unmarshal(raw, &m); err != nil {
		return m, bourse.Errorf(bourse.CodeInternal, "worker %s answered with what is no manifest: %w", p.to.ID, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = m.ID
	return m, nil
}

// Chunk implements volume.Source.
func (p *peer) Chunk(ctx context.Context, n int, _ string) (io.ReadCloser, error) {
	p.mu.Lock()
	of := fabric.Export{ID: p.latest, Grant: p.export.Grant}
	p.mu.Unlock()
	if of.ID == "" {
		return nil, bourse.Errorf(bourse.CodeInternal, "chunk %d of %s before its manifest", n, p.export.ID)
	}
	return fabric.VolumeChunk.Open(ctx, p.fabric, p.to, fabric.Chunk{Of: of, N: n}, nil)
}
