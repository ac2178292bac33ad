package volumes

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// fillStep fills a volume from a snapshot or another volume, on this or another worker. While the source is
// unavailable, the step is retried. If all attempts fail, the run gets stuck, and an operator can retry it or destroy
// the volume. After a final error, such as a refusal by the source, the volume's state becomes failed.
func (vs *Volumes) fillStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeRestoring && v.State != bourse.VolumeHydrating { // the volume was destroyed in the meantime
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s", v.ID, v.State))
	}
	err = vs.fill(ctx, &v)
	switch {
	case err == nil:
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return settle(tx, v.ID, "fill") }))
	case !isFinal(err):
		return fsm.Retry(err)
	}
	if left := vs.host.Destroy(ctx, v.ID); left != nil {
		return fsm.Retry(errors.Join(err, left))
	}
	return fsm.Abort(err, state.InTx(func(tx *store.Tx) error { return failRecord(tx, v.ID, err) }))
}

// failRecord records that a volume could not be filled with its source's content. The order still counts as filled,
// because the client has already received the volume's id and can read the error.
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

// fill copies the content of v's source to v on the host. It resumes where an earlier attempt was interrupted.
func (vs *Volumes) fill(ctx context.Context, v *bourse.Volume) error {
	id, tag := admit.SourceOf(&v.Spec)
	if tag == vs.state.Self.Tag {
		if err := vs.state.Store.View(func(tx *store.Tx) error {
			_, err := admit.LocalSource(tx, &bourse.App{Name: v.App, ID: v.AppID}, &v.Spec, v.CreatedAt)
			return err
		}); err != nil {
			return err
		}
		return vs.host.Copy(ctx, v.ID, v.Spec, id)
	}
	if vs.peers == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "no other worker can be reached")
	}
	return vs.host.Fill(ctx, v.ID, v.Spec, func(ctx context.Context, from volume.Position) (io.ReadCloser, error) {
		ctx, cancel := context.WithCancel(ctx)
		watch := time.AfterFunc(beginTimeout, cancel)
		stream, err := vs.peers.Export(ctx, tag, id, v.Spec.Grant, from)
		if err != nil {
			watch.Stop()
			cancel()
			return nil, err
		}
		return &watchedStream{ReadCloser: stream, cancel: cancel, watch: watch}, nil
	})
}

const (
	// beginTimeout limits how long a stream may take to begin. Before the stream begins, the source may have to copy
	// the volume, or to skip data that it sent earlier.
	beginTimeout = 30 * time.Minute
	// readTimeout limits how long the source may pause while it is sending.
	readTimeout = 2 * time.Minute
)

// watchedStream is a stream that is canceled if the source stops sending.
type watchedStream struct {
	io.ReadCloser
	cancel context.CancelFunc
	watch  *time.Timer
	begun  bool
}

// Read implements io.Reader.
func (s *watchedStream) Read(p []byte) (int, error) {
	if s.begun {
		s.watch.Reset(readTimeout)
	}
	n, err := s.ReadCloser.Read(p)
	s.begun = true
	s.watch.Stop() // the time that this worker takes to write does not count
	return n, err
}

// Close implements io.Closer.
func (s *watchedStream) Close() error {
	s.watch.Stop()
	s.cancel()
	return s.ReadCloser.Close()
}
