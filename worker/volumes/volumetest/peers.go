package volumetest

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// hostSource is what a host has as a source.
type hostSource struct {
	id       string
	manifest func(context.Context, string) (volume.Manifest, error)
	chunk    func(context.Context, string, int, io.Writer) error
	release  func(context.Context, string) error // set: of this host
	latest   string
}

// Manifest implements volume.Source.
func (s *hostSource) Manifest(ctx context.Context) (volume.Manifest, error) {
	m, err := s.manifest(ctx, s.id)
	s.latest = m.ID
	return m, err
}

// Chunk implements volume.Source.
func (s *hostSource) Chunk(ctx context.Context, n int, _ string) (io.ReadCloser, error) {
	var b bytes.Buffer
	if err := s.chunk(ctx, s.latest, n, &b); err != nil {
		return nil, err
	}
	return io.NopCloser(&b), nil
}

// Peers are other workers that can be away.
type Peers struct {
	Find func(bourse.WorkerTag) *volumes.Volumes // nil: that one is down, or there is none

	mu   sync.Mutex
	away func(call string) error
}

func (p *Peers) peer(call string, tag bourse.WorkerTag) (*volumes.Volumes, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		if err := p.away(call); err != nil {
			return nil, err
		}
	}
	vs := p.Find(tag)
	if vs == nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %d is not known", tag)
	}
	return vs, nil
}

// SetAway has away called before each call; its error is the call's.
func (p *Peers) SetAway(away func(call string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// Source implements volumes.Peers.
func (p *Peers) Source(_ context.Context, tag bourse.WorkerTag, id, _ string) (volume.Source, error) {
	return &hostSource{
		id: id,
		manifest: func(ctx context.Context, id string) (m volume.Manifest, err error) {
			vs, err := p.peer("Manifest", tag)
			if err != nil {
				return m, err
			}
			return vs.Manifest(ctx, id)
		},
		chunk: func(ctx context.Context, id string, n int, to io.Writer) error {
			vs, err := p.peer("Chunk", tag)
			if err != nil {
				return err
			}
			return vs.Chunk(ctx, id, n, to)
		},
	}, nil
}

// Release implements volumes.Peers.
func (p *Peers) Release(ctx context.Context, tag bourse.WorkerTag, id, _ string) error {
	vs, err := p.peer("Release", tag)
	if err != nil {
		return err
	}
	return vs.Release(ctx, id)
}

var _ volumes.Peers = (*Peers)(nil)
