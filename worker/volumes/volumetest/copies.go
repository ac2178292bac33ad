package volumetest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

func digestOf(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

// memPiece is the number of bytes that Fill reads from a stream at a time.
const memPiece = 4

// head is the first line of a stream that Export writes. The data follows.
type head struct {
	Volume bourse.VolumeID
	Moment string
	SizeGB int64
	Length int // total number of bytes of data
}

// Export implements volumes.Host.
func (f *Host) Export(ctx context.Context, id string, from volume.Position, w io.Writer) error {
	var s snapshot
	moment := id
	if err := f.call(ctx, "Export", id, func() error {
		var ok bool
		if s, ok = f.snaps[bourse.SnapshotID(id)]; ok {
			return nil
		}
		if s, ok = f.forks[from.Moment]; ok {
			moment = from.Moment
			return nil
		}
		v, err := f.get(bourse.VolumeID(id))
		if err != nil {
			return err
		}
		s = snapshot{bourse.VolumeID(id), v.SizeGB, v.Data}
		f.forked++
		moment = fmt.Sprintf("fork %d of %s", f.forked, id)
		f.forks[moment] = s
		return nil
	}); err != nil {
		return err
	}
	if moment != from.Moment {
		from.Offset = 0
	}
	line, err := json.Marshal(head{s.of, moment, s.sizeGB, len(s.data)})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s\n%s", line, s.data[from.Offset:]); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.forks, moment)
	return nil
}

// filling is the data received so far for a volume that is being filled.
type filling struct {
	moment, data string
}

// Fill implements volumes.Host.
func (f *Host) Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src volume.Source) error {
	return f.call(ctx, "Fill", string(id), func() error {
		if f.volumes[id] != nil {
			return nil
		}
		have := f.filling[id]
		f.mu.Unlock() // reading from the source may take a long time
		err := f.receive(ctx, &have, &spec, src)
		f.mu.Lock()
		f.filling[id] = have
		if err == nil {
			f.volumes[id] = &Volume{SizeGB: spec.SizeGB, Data: have.data}
			delete(f.filling, id)
		}
		return err
	})
}

func (f *Host) receive(ctx context.Context, have *filling, spec *bourse.VolumeOrder, src volume.Source) error {
	stream, err := src(ctx, volume.Position{Moment: have.moment, Offset: int64(len(have.data))})
	if err != nil {
		return err
	}
	defer stream.Close()
	r := bufio.NewReader(stream)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return err
	}
	if h.SizeGB > spec.SizeGB {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: the source has %d", spec.SizeGB, h.SizeGB)
	}
	if h.Moment != have.moment {
		*have = filling{moment: h.Moment}
	}
	for len(have.data) < h.Length {
		b := make([]byte, min(memPiece, h.Length-len(have.data)))
		if _, err := io.ReadFull(r, b); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "the source's stream broke: %w", err)
		}
		have.data += string(b)
		f.mu.Lock()
		f.fetched += len(b)
		f.mu.Unlock()
	}
	return nil
}

// Copy implements volumes.Host.
func (f *Host) Copy(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, from string) error {
	return f.Fill(ctx, id, spec, func(ctx context.Context, at volume.Position) (io.ReadCloser, error) {
		return stream(func(w io.Writer) error { return f.Export(ctx, from, at, w) }), nil
	})
}

// stream returns a reader for the data that write writes.
func stream(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(write(w)) }()
	return r
}
