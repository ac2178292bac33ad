package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Manifest describes a snapshot, or the present content of a volume, for a caller
// that fills another volume with it.
//
// That of a volume is what is in it now. A mounted volume is copied for this
// (see capture), and the copy stays for its readers until Release, or
// for 15 minutes after the last chunk was read. A volume that is not mounted
// is read in place: if a machine changes it before all chunks are fetched,
// some no longer have the digest of the manifest, and a Fill that notices
// asks for the manifest again.
//
// Read the chunks by the manifest's ID; the volume's ID means those
// of its latest manifest.
func (s *Store) Manifest(ctx context.Context, id string) (Manifest, error) {
	if bourse.SnapshotID(id).Validate() == nil {
		if err := s.need(id); err != nil {
			return Manifest{}, err
		}
		m, err := s.readManifest(id, complete)
		return s.withKey(m, id, complete, err)
	}
	if err := bourse.VolumeID(id).Validate(); err != nil {
		return Manifest{}, bourse.Errorf(bourse.CodeInvalid, "invalid id %s: want that of a volume or a snapshot", bourse.Quoted(id))
	}
	if err := s.need(id); err != nil {
		return Manifest{}, err
	}
	m, ok, err := s.manifestInPlace(ctx, id)
	if err != nil || ok {
		return s.withKey(m, id, complete, err)
	}
	return s.fork(ctx, id)
}

// manifestInPlace describes a volume that is not mounted in the meantime.
func (s *Store) manifestInPlace(ctx context.Context, id string) (Manifest, bool, error) {
	before := s.mountCount(id)
	if device, err := mountedOn(s.path(id, complete, mountDir)); err != nil || device != "" {
		return Manifest{}, false, err
	}
	c := &capturing{s: s, id: id}
	if err := c.open(); err != nil {
		return Manifest{}, false, err
	}
	defer func() { _ = c.src.Close() }() // only read
	now, err := versionOf(c.src, before)
	if err != nil {
		return Manifest{}, false, failed(err, "read %s", id)
	}
	if m, ok := s.known.find(id, now); ok {
		return m, true, nil
	}
	all, err := sumImage(ctx, c.src, nil, c.size)
	if err != nil {
		return Manifest{}, false, failed(err, "read %s", id)
	}
	m := all.manifest(c.size)
	m.ID, m.Volume, m.Encrypted = id, bourse.VolumeID(id), c.crypted
	m.Digest = m.sum()
	after, err := versionOf(c.src, s.mountCount(id))
	if err != nil {
		return Manifest{}, false, failed(err, "read %s", id)
	}
	if now == after {
		s.known.keep(id, now, m)
	}
	return m, now == after, nil
}

// withKey adds the key that the receiver of an encrypted image needs.
func (s *Store) withKey(m Manifest, id string, at stage, err error) (Manifest, error) {
	if err != nil || !m.Encrypted {
		return m, err
	}
	if err := s.mayEncrypt(); err != nil {
		return Manifest{}, err
	}
	m.Key, err = s.keyOf(id, at)
	return m, err
}

// Chunk writes chunk n of a manifest's content to w.
func (s *Store) Chunk(ctx context.Context, id string, n int, w io.Writer) error {
	f, chunk, err := s.openChunk(id, n)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	buf := make([]byte, pieceBytes)
	for {
		got, err := chunk.Read(buf)
		if got > 0 {
			if _, err := w.Write(buf[:got]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return failed(err, "read chunk %d of %s", n, id)
		}
	}
}

// openChunk opens the file that has the content of an id, with a reader of
// chunk n.
func (s *Store) openChunk(id string, n int) (*os.File, *io.SectionReader, error) {
	path, err := s.exported(id)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, bourse.Errorf(bourse.CodeNotFound, "%s is not on this host", id)
	}
	if err != nil {
		return nil, nil, failed(err, "read %s", id)
	}
	st, err := f.Stat()
	if err == nil && (n < 0 || n >= chunks(st.Size())) {
		err = bourse.Errorf(bourse.CodeInvalid, "invalid chunk %d of %s: it has %d", n, id, chunks(st.Size()))
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, nil, failed(err, "read %s", id)
	}
	return f, io.NewSectionReader(f, int64(n)*ChunkBytes, chunkLength(st.Size(), n)), nil
}

// exported returns the file that the chunks of an id are read from, and prolongs the
// life of a copy made for this.
func (s *Store) exported(id string) (string, error) {
	if bourse.SnapshotID(id).Validate() == nil {
		return s.path(id, complete, imageFile), nil
	}
	of, at, ok := parseForkID(id)
	if !ok {
		if err := bourse.VolumeID(id).Validate(); err != nil {
			return "", bourse.Errorf(bourse.CodeInvalid, "invalid id %s: want that of a manifest", bourse.Quoted(id))
		}
		latest, err := s.latestFork(id)
		if err != nil {
			return "", err
		}
		of, at = id, latest
	}
	if at != complete {
		s.renewFork(of, at)
	}
	return s.path(of, at, imageFile), nil
}

const forkIDPrefix = "fork of "

func forkID(id string, n int) string { return fmt.Sprintf("%s%s %d", forkIDPrefix, id, n) }

func parseForkID(s string) (id string, at stage, ok bool) {
	rest, ok := strings.CutPrefix(s, forkIDPrefix)
	id, number, both := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(number, 10, 29)
	if !ok || !both || err != nil || bourse.VolumeID(id).Validate() != nil {
		return "", "", false
	}
	return id, forkStage(int(n)), true
}

func forkStage(n int) stage { return forked + stage(strconv.Itoa(n)) }
