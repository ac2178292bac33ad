package volumes

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
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// fillStep fills a volume from a snapshot or another volume, here or at
// another worker. A source that is away is asked again for a while, then the
// run is stuck: visible, and to be retried or destroyed. One that says no
// makes the volume a failed one.
func (vs *Volumes) fillStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.now(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeRestoring && v.State != bourse.VolumeHydrating { // destroyed meanwhile
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s", v.ID, v.State))
	}
	err = vs.fill(ctx, &v)
	switch {
	case err == nil:
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return settle(tx, v.ID, "fill") }))
	case !isAnswer(err):
		return fsm.Retry(err)
	}
	if left := vs.host.Destroy(ctx, v.ID); left != nil {
		return fsm.Retry(errors.Join(err, left))
	}
	return fsm.Abort(err, state.InTx(func(tx *store.Tx) error { return failRecord(tx, v.ID, err) }))
}

// failRecord records that a volume could not be filled. Its order stays
// filled: its caller has the volume, which says what became of it.
func failRecord(tx *store.Tx, id bourse.VolumeID, cause error) error {
	_, err := changeRecord(tx, id, "fail", func(v *bourse.Volume) (bool, error) {
		if !v.State.CanBecome(bourse.VolumeFailed) {
			return false, nil
		}
		v.State, v.Error = bourse.VolumeFailed, bourse.MessageOf(cause)
		v.Takes = Takes(v)
		return true, nil
	})
	return err
}

// fill fills a volume on the host, or goes on with that.
func (vs *Volumes) fill(ctx context.Context, v *bourse.Volume) error {
	id, tag := admit.SourceOf(&v.Spec)
	if tag == vs.state.Self.Tag {
		if err := vs.state.Store.View(func(tx *store.Tx) error {
			_, err := admit.LocalSource(tx, state.OwnerOf(v.App, v.AppID), &v.Spec, v.CreatedAt)
			return err
		}); err != nil {
			return err
		}
		return vs.host.Fill(ctx, v.ID, v.Spec, vs.host.Local(id))
	}
	if vs.peers == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "no other worker can be reached")
	}
	src, err := vs.peers.Source(ctx, tag, id, v.Spec.Grant)
	if err != nil {
		return err
	}
	remote := &remoteSource{Source: src}
	err = vs.host.Fill(ctx, v.ID, v.Spec, remote)
	vs.releaseRemote(ctx, tag, v.Spec.Grant, remote.manifests())
	return err
}

// releaseRemote ends the reading of another worker's manifests. The other worker
// does so after some minutes in any case.
func (vs *Volumes) releaseRemote(ctx context.Context, tag bourse.WorkerTag, grant string, manifests []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	for _, id := range manifests {
		if err := vs.peers.Release(ctx, tag, id, grant); err != nil {
			vs.state.Log.Debug("release the source of a volume", "source", id, "err", err)
		}
	}
}

// Patience with one request to a source.
const (
	manifestPatience = 30 * time.Minute // the source reads all of the volume for it
	chunkPatience    = 2 * time.Minute
	releasePatience  = 10 * time.Second
)

// remoteSource is another worker's volume or snapshot. It notices when the other
// side no longer sends, and remembers what is to be given back.
type remoteSource struct {
	volume.Source

	mu   sync.Mutex
	held []string // guarded by mu; ids of manifests
}

func (s *remoteSource) manifests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Manifest implements volume.Source.
func (s *remoteSource) Manifest(ctx context.Context) (volume.Manifest, error) {
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
func (s *remoteSource) Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error) {
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
