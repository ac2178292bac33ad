package worker

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

// hostSource is what a host has as a source.
type hostSource struct {
	id       string
	manifest func(context.Context, string) (volume.Manifest, error)
	chunk    func(context.Context, string, int, io.Writer) error
	release  func(context.Context, string) error // set: of this host
	latest   string
}

func (s *hostSource) Manifest(ctx context.Context) (volume.Manifest, error) {
	m, err := s.manifest(ctx, s.id)
	s.latest = m.ID
	return m, err
}

func (s *hostSource) Chunk(ctx context.Context, n int, _ string) (io.ReadCloser, error) {
	var b bytes.Buffer
	if err := s.chunk(ctx, s.latest, n, &b); err != nil {
		return nil, err
	}
	return io.NopCloser(&b), nil
}

// memPeers are other workers that can be away.
type memPeers struct {
	mu    sync.Mutex
	hosts map[bourse.WorkerTag]*host
	away  func(call string) error
}

func (p *memPeers) peer(call string, tag bourse.WorkerTag) (*Worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		if err := p.away(call); err != nil {
			return nil, err
		}
	}
	h := p.hosts[tag]
	if h == nil || h.Worker == nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "nobody knows worker %d", tag)
	}
	return h.Worker, nil
}

func (p *memPeers) setAway(away func(call string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *memPeers) Source(_ context.Context, tag bourse.WorkerTag, id, _ string) (volume.Source, error) {
	return &hostSource{
		id: id,
		manifest: func(ctx context.Context, id string) (m volume.Manifest, err error) {
			w, err := p.peer("Manifest", tag)
			if err != nil {
				return m, err
			}
			return w.manifest(ctx, id)
		},
		chunk: func(ctx context.Context, id string, n int, to io.Writer) error {
			w, err := p.peer("Chunk", tag)
			if err != nil {
				return err
			}
			return w.chunk(ctx, id, n, to)
		},
	}, nil
}

func (p *memPeers) Release(ctx context.Context, tag bourse.WorkerTag, id, _ string) error {
	w, err := p.peer("Release", tag)
	if err != nil {
		return err
	}
	return w.giveBack(ctx, id)
}
