package volumetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Manifest implements volumes.Host.
func (f *Host) Manifest(ctx context.Context, id string) (m volume.Manifest, err error) {
	return m, f.call(ctx, "Manifest", id, func() error {
		s, ok := f.snaps[bourse.SnapshotID(id)]
		m.ID = id
		if !ok {
			v, err := f.get(bourse.VolumeID(id))
			if err != nil {
				return err
			}
			s = snapshot{bourse.VolumeID(id), v.SizeGB, v.Data}
			f.forked++
			m.ID = fmt.Sprintf("fork of %s %d", id, f.forked)
			f.forks[m.ID] = s
		}
		m.Volume, m.Bytes, m.Digest = s.of, s.sizeGB<<30, digestOf(s.data)
		for n, c := range ChunksOf(s.data) {
			m.Chunks = append(m.Chunks, volume.Chunk{N: n, Digest: digestOf(c)})
		}
		return nil
	})
}

// ChunksOf returns the chunks of a volume with this data.
func ChunksOf(s string) []string {
	var out []string
	for c := range slices.Chunk([]byte(s), memChunk) {
		out = append(out, string(c))
	}
	return out
}

// Chunk implements volumes.Host.
func (f *Host) Chunk(ctx context.Context, id string, n int, w io.Writer) error {
	var data []byte
	err := f.call(ctx, "Chunk", id, func() error {
		s, ok := f.forks[id]
		if !ok {
			s, ok = f.snaps[bourse.SnapshotID(id)]
		}
		list := ChunksOf(s.data)
		if !ok || n < 0 || n >= len(list) {
			return bourse.Errorf(bourse.CodeNotFound, "no chunk %d of %s", n, id)
		}
		data = []byte(list[n])
		return nil
	})
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// Release implements volumes.Host.
func (f *Host) Release(ctx context.Context, id string) error {
	return f.call(ctx, "Release", id, func() error { delete(f.forks, id); return nil })
}

// Fill implements volumes.Host.
func (f *Host) Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src volume.Source) error {
	return f.call(ctx, "Fill", string(id), func() error {
		if f.volumes[id] != nil {
			return nil
		}
		if f.filling[id] == nil {
			f.filling[id] = map[int]string{}
		}
		have := f.filling[id]
		f.mu.Unlock() // a source may be slow, and may be this host
		data, err := fetchAll(ctx, spec, src, have, func() { f.mu.Lock(); f.fetched++; f.mu.Unlock() })
		if l, ok := src.(*hostSource); ok && l.release != nil {
			_ = l.release(ctx, l.latest)
		}
		f.mu.Lock()
		if err == nil {
			f.volumes[id] = &Volume{SizeGB: spec.SizeGB, Data: data}
			delete(f.filling, id)
		}
		return err
	})
}

func fetchAll(ctx context.Context, spec bourse.VolumeOrder, src volume.Source, have map[int]string, fetched func()) (string, error) {
	m, err := src.Manifest(ctx)
	if err != nil {
		return "", err
	}
	if m.Bytes > spec.SizeGB<<30 {
		return "", bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: the source has %d bytes", spec.SizeGB, m.Bytes)
	}
	var data strings.Builder
	for _, c := range m.Chunks {
		if digestOf(have[c.N]) != c.Digest {
			body, err := src.Chunk(ctx, c.N, c.Digest)
			if err != nil {
				return "", err
			}
			b, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil || digestOf(string(b)) != c.Digest {
				return "", bourse.Errorf(bourse.CodeUnavailable, "chunk %d is not what was promised: %v", c.N, err)
			}
			have[c.N] = string(b)
			fetched()
		}
		data.WriteString(have[c.N])
	}
	return data.String(), nil
}
