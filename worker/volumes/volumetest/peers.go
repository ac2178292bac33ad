package volumetest

import (
	"context"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// Peers reads other workers' volumes. With SetAway, tests can make the other workers unavailable.
type Peers struct {
	Find func(bourse.WorkerTag) *volumes.Volumes // returns the volumes of a worker, or nil if it is down or does not exist

	mu   sync.Mutex
	away func(call string) error
}

// call calls the function set by SetAway, if any.
func (p *Peers) call(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == nil {
		return nil
	}
	return p.away(name)
}

// SetAway sets a function that is called before each Export, and after each Read of a stream. If
// the function returns an error, the Export or Read fails with that error.
func (p *Peers) SetAway(away func(call string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// Export implements volumes.Peers.
func (p *Peers) Export(ctx context.Context, tag bourse.WorkerTag, id, _ string, from volume.Position) (io.ReadCloser, error) {
	if err := p.call("Export"); err != nil {
		return nil, err
	}
	vs := p.Find(tag)
	if vs == nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %d is unknown", tag)
	}
	return &peerStream{stream(func(w io.Writer) error { return vs.Export(ctx, id, from, w) }), p}, nil
}

// peerStream is a slow stream, which returns one byte at a time.
type peerStream struct {
	io.ReadCloser
	peers *Peers
}

// Read implements io.Reader.
func (s *peerStream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b[:1])
	if away := s.peers.call("Read"); away != nil {
		return 0, away
	}
	return n, err
}

var _ volumes.Peers = (*Peers)(nil)
