package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// fillVolume fills a volume from a snapshot or another volume, here or at
// another worker. A source that is away is asked again for a while, then the
// run is stuck: visible, and to be retried or destroyed. One that says no
// makes the volume a failed one.
func (w *Worker) fillVolume(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := w.volumeNow(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeRestoring && v.State != bourse.VolumeHydrating { // destroyed meanwhile
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s", v.ID, v.State))
	}
	err = w.fill(ctx, &v)
	switch {
	case err == nil:
		return fsm.Done(inTx(func(tx *store.Tx) error { return settleVolume(tx, v.ID, "fill") }))
	case !isAnswer(err):
		return fsm.Retry(err)
	}
	if left := w.volumes.host.Destroy(ctx, v.ID); left != nil {
		return fsm.Retry(errors.Join(err, left))
	}
	return fsm.Abort(err, inTx(func(tx *store.Tx) error { return failVolume(tx, v.ID, err) }))
}

// failVolume records that a volume could not be filled. Its order stays
// filled: its caller was told of the volume, which says what became of it.
func failVolume(tx *store.Tx, id bourse.VolumeID, cause error) error {
	_, err := changeVolume(tx, id, "fail", func(v *bourse.Volume) (bool, error) {
		if !v.State.CanBecome(bourse.VolumeFailed) {
			return false, nil
		}
		v.State, v.Error = bourse.VolumeFailed, bourse.MessageOf(cause)
		v.Takes = volumeTakes(v)
		return true, nil
	})
	return err
}

// fill fills a volume on the host, or goes on with that.
func (w *Worker) fill(ctx context.Context, v *bourse.Volume) error {
	id, tag := sourceOf(&v.Spec)
	if tag == w.self.Tag {
		if err := w.store.View(func(tx *store.Tx) error {
			_, err := localSource(tx, ownerOf(v.App, v.AppID), &v.Spec, v.CreatedAt)
			return err
		}); err != nil {
			return err
		}
		return w.volumes.host.Fill(ctx, v.ID, v.Spec, w.volumes.host.Local(id))
	}
	if w.volumes.peers == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "no other worker can be reached")
	}
	src, err := w.volumes.peers.Source(ctx, tag, id, v.Spec.Grant)
	if err != nil {
		return err
	}
	far := &farSource{Source: src}
	err = w.volumes.host.Fill(ctx, v.ID, v.Spec, far)
	w.releaseFar(ctx, tag, v.Spec.Grant, far.manifests())
	return err
}

// releaseFar gives back what was read of another worker. It is done there after
// some minutes in any case.
func (w *Worker) releaseFar(ctx context.Context, tag bourse.WorkerTag, grant string, manifests []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	for _, id := range manifests {
		if err := w.volumes.peers.Release(ctx, tag, id, grant); err != nil {
			w.log.Debug("give back the source of a volume", "source", id, "err", err)
		}
	}
}

// Patience with one request to a source.
const (
	manifestPatience = 30 * time.Minute // the source reads all of the volume for it
	chunkPatience    = 2 * time.Minute
	releasePatience  = 10 * time.Second
)

// farSource is another worker's volume or snapshot. It notices when the other
// side no longer sends, and remembers what is to be given back.
type farSource struct {
	volume.Source

	mu   sync.Mutex
	held []string // guarded by mu; ids of manifests
}

func (s *farSource) manifests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Manifest implements volume.Source.
func (s *farSource) Manifest(ctx context.Context) (volume.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, manifestPatience)
	defer cancel()
	m, err := s.Source.Manifest(ctx)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = append(s.held, m.ID)
	}
	return m, err
}

// Chunk implements volume.Source.
func (s *farSource) Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, chunkPatience)
	body, err := s.Source.Chunk(ctx, n, digest)
	if err != nil {
		cancel()
		return nil, err
	}
	return &timedBody{body, cancel}, nil
}

// timedBody ends its context when it is closed.
type timedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *timedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
