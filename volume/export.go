package volume

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bourse-dev/bourse"
)

// Export writes the content of a volume or snapshot to w as a stream; see Source. It does not write
// anything, not even the header, until it has found the first piece to send.
//
// A volume in use is copied first (see capture). The copy remains for 15 minutes after its latest
// reader has disconnected, but only for 30 seconds if that reader was sent the whole stream. An
// unused volume is read in place. If it changes while it is read, Export returns CodeUnavailable
// before the end of the stream.
func (s *Store) Export(ctx context.Context, id string, from Position, w io.Writer) error {
	e, err := s.openExport(ctx, id, from.Moment)
	if err != nil {
		return err
	}
	defer e.close()
	if e.head.Moment != from.Moment {
		from.Offset = 0
	}
	if from.Offset < 0 || from.Offset > e.head.Bytes {
		return bourse.Errorf(bourse.CodeInvalid, "invalid offset %d of %s: it has %d bytes", from.Offset, id, e.head.Bytes)
	}
	out := &sender{Writer: bufio.NewWriter(w), head: &e.head}
	s.step("export")
	sum := newSum(&e.head.content)
	err = eachPiece(ctx, e.image, e.head.Bytes, func(off int64, piece []byte) error {
		sum.add(off, piece)
		if off < from.Offset {
			return nil
		}
		return out.send(off, piece)
	})
	if err == nil && !e.unchanged() {
		err = bourse.Errorf(bourse.CodeUnavailable, "%s changed while it was read", id)
	}
	if err == nil {
		err = out.send(e.head.Bytes, sum.Sum(nil))
	}
	if err == nil {
		err = out.Flush()
	}
	e.sent = err == nil
	return failed(err, "export %s", id)
}

// sender writes a stream to w. It writes the header before the first piece.
type sender struct {
	*bufio.Writer
	head  *header
	begun bool
}

func (s *sender) send(off int64, data []byte) error {
	if !s.begun {
		s.begun = true
		line, err := json.Marshal(s.head)
		if err != nil {
			return err
		}
		_, _ = s.Write(append(line, '\n')) // the next write returns the same error
	}
	_, _ = s.Write(binary.BigEndian.AppendUint64(nil, uint64(off)))
	_, err := s.Write(data)
	return err
}

// export is an image that is being sent.
type export struct {
	image     *os.File // opened for reading only
	head      header
	unchanged func() bool
	fork      string // directory of the copy; "" if image is not a copy
	sent      bool   // whether the whole stream was sent
	store     *Store
}

func (e *export) close() {
	_ = e.image.Close()
	if e.fork == "" {
		return
	}
	life := forkLife
	if e.sent {
		life = forkRetention
	}
	e.store.expireFork(e.fork, life)
}

func (s *Store) openExport(ctx context.Context, id, moment string) (*export, error) {
	if bourse.SnapshotID(id).Validate() == nil {
		return s.openStage(id, stageComplete, id)
	}
	if err := bourse.VolumeID(id).Validate(); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid id %s: use a volume or snapshot id", bourse.Quoted(id))
	}
	if err := s.requireComplete(id); err != nil {
		return nil, err
	}
	if at := stage("." + moment); s.holdFork(id, at) {
		return s.openFork(id, at)
	}
	mounts := s.mountCount(id)
	used, err := s.isUsed(id)
	if err != nil {
		return nil, err
	}
	if used {
		at, err := s.fork(ctx, id)
		if err != nil {
			return nil, err
		}
		return s.openFork(id, at)
	}
	e, err := s.openStage(id, stageComplete, "")
	if err != nil {
		return nil, err
	}
	e.head.Moment = versionOf(e.image)
	e.unchanged = func() bool { return s.mountCount(id) == mounts && versionOf(e.image) == e.head.Moment }
	return e, nil
}

// openFork opens a copy that was created by fork or found by holdFork.
func (s *Store) openFork(id string, at stage) (*export, error) {
	e, err := s.openStage(id, at, string(at[1:]))
	if err != nil {
		s.expireFork(id+string(at), forkLife)
		return nil, err
	}
	e.fork = id + string(at)
	return e, nil
}

// openStage opens the image of an object in the given stage in order to send it. moment identifies
// the image's content.
func (s *Store) openStage(id string, at stage, moment string) (*export, error) {
	image, c, err := s.openImage(id, at)
	if err != nil {
		return nil, err
	}
	e := &export{image: image, head: header{content: c, Moment: moment}, unchanged: func() bool { return true }, store: s}
	if c.Encrypted {
		if err = s.mayEncrypt(); err == nil {
			e.head.Key, err = s.keyOf(id, at)
		}
		if err != nil {
			return nil, errors.Join(err, image.Close())
		}
	}
	return e, nil
}

// openImage opens the image of an object in the given stage, and describes it.
func (s *Store) openImage(id string, at stage) (*os.File, content, error) {
	image, err := os.Open(s.path(id, at, imageFile))
	if errors.Is(err, os.ErrNotExist) {
		if err := s.requireComplete(id); err != nil {
			return nil, content{}, err
		}
		return nil, content{}, damaged(id, "its image is missing")
	}
	if err != nil {
		return nil, content{}, failed(err, "open %s", id)
	}
	c := content{Volume: bourse.VolumeID(id)}
	st, err := image.Stat()
	if err == nil {
		c.Bytes = st.Size()
		c.Encrypted, err = s.isEncrypted(id, at, image)
	}
	if err == nil {
		c.VM, err = s.isVM(id, at)
	}
	if err != nil {
		return nil, content{}, failed(errors.Join(err, image.Close()), "read %s", id)
	}
	return image, c, nil
}

// versionOf returns a string that identifies the current content of an image that is read in place.
// The string stays the same when the daemon restarts.
func versionOf(image *os.File) string {
	st, err := image.Stat()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d-%d-%d", st.ModTime().UnixNano(), st.Size(), inodeOf(st))
}
