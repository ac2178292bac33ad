package main

import (
	"context"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker"
)

// peers are the other workers, as sources of volumes and snapshots.
type peers struct {
	client    *fabric.Client
	directory *gossip.Directory
}

var _ worker.Peers = peers{}

// Source implements worker.Peers.
func (p peers) Source(_ context.Context, tag bourse.WorkerTag, id, grant string) (volume.Source, error) {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	return &peer{client: p.client, to: to, id: id, grant: grant}, nil
}

// Release implements worker.Peers.
func (p peers) Release(ctx context.Context, tag bourse.WorkerTag, id, grant string) error {
	to, ok := p.directory.ByTag(tag)
	if !ok {
		return bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	return p.client.ExportEnd(ctx, to, id, grant)
}

// peer is a volume or snapshot of another worker.
type peer struct {
	client *fabric.Client
	to     bourse.Member
	id     string
	grant  string

	mu     sync.Mutex
	latest *fabric.Export // of the latest manifest
}

var _ volume.Source = (*peer)(nil)

// Manifest implements volume.Source. That of a volume is of one moment, under
// a name of its own.
func (p *peer) Manifest(ctx context.Context) (volume.Manifest, error) {
	var m volume.Manifest
	if err := p.client.Export(p.to, p.id, p.grant).Manifest(ctx, &m); err != nil {
		return m, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = p.client.Export(p.to, m.ID, p.grant)
	return m, nil
}

// Chunk implements volume.Source.
func (p *peer) Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error) {
	p.mu.Lock()
	from := p.latest
	p.mu.Unlock()
	if from == nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "chunk %d of %s before its manifest", n, p.id)
	}
	return from.Chunk(ctx, n, digest)
}
