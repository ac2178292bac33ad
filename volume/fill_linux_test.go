package volume

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/bourse-dev/bourse"
)

// spoiled returns a source whose streams are changed by spoil. n is the number of the stream,
// starting at 1.
func spoiled(src Source, spoil func(n int, stream []byte) io.Reader) Source {
	n := 0
	return func(ctx context.Context, at Position) (io.ReadCloser, error) {
		r, err := src(ctx, at)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		n++
		return io.NopCloser(spoil(n, b)), nil
	}
}

func broken(b []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(b), iotest.ErrReader(errors.New("connection broken")))
}

// TestFaultySource fills volumes from sources whose stream ends early or contains wrong data. Either the volume becomes
// complete, or Fill returns an error and the volume does not exist.
func TestFaultySource(t *testing.T) {
	from := open(t, inMemory(t))
	create(t, from, vol1)
	writeMarks(t, mount(t, from, vol1))
	must(t, from.Unmount(t.Context(), vol1))
	// piece returns the offset in a stream at which the first piece begins.
	piece := func(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }
	head := func(b []byte, change func(*header)) io.Reader {
		h, err := readHeader(bufio.NewReader(bytes.NewReader(b)))
		must(t, err)
		change(&h)
		line, err := json.Marshal(h)
		must(t, err)
		return bytes.NewReader(append(append(line, '\n'), b[piece(b):]...))
	}
	offset := func(b []byte, at int, off uint64) io.Reader {
		binary.BigEndian.PutUint64(b[at:], off)
		return bytes.NewReader(b)
	}
	const second = 8 + pieceBytes // size of the first piece, with its offset
	for name, c := range map[string]struct {
		spoil func(n int, b []byte) io.Reader
		want  bourse.Code
	}{
		"honest":     {spoil: func(_ int, b []byte) io.Reader { return bytes.NewReader(b) }},
		"wrong once": {spoil: func(n int, b []byte) io.Reader { b[len(b)/2] ^= byte(min(n, 2) & 1); return bytes.NewReader(b) }},
		"broken once": {spoil: func(n int, b []byte) io.Reader {
			if n == 1 {
				return broken(b[:len(b)/2])
			}
			return bytes.NewReader(b)
		}},
		"wrong":          {func(_ int, b []byte) io.Reader { b[len(b)/2] ^= 1; return bytes.NewReader(b) }, bourse.CodeUnavailable},
		"wrong checksum": {func(_ int, b []byte) io.Reader { b[len(b)-1] ^= 1; return bytes.NewReader(b) }, bourse.CodeUnavailable},
		"short":          {func(_ int, b []byte) io.Reader { return bytes.NewReader(b[:len(b)-1]) }, bourse.CodeUnavailable},
		"no checksum":    {func(_ int, b []byte) io.Reader { return bytes.NewReader(b[:len(b)-40]) }, bourse.CodeUnavailable},
		"nothing":        {func(int, []byte) io.Reader { return bytes.NewReader(nil) }, bourse.CodeUnavailable},
		"broken":         {func(_ int, b []byte) io.Reader { return broken(b[:piece(b)+100]) }, bourse.CodeUnavailable},
		"endless header": {func(int, []byte) io.Reader { return neverEnding{} }, bourse.CodeInvalid},
		"no header":      {func(_ int, b []byte) io.Reader { return bytes.NewReader(b[piece(b)-1:]) }, bourse.CodeInvalid},
		"beyond the end": {func(_ int, b []byte) io.Reader { return offset(b, piece(b)+second, 2*gib) }, bourse.CodeInvalid},
		"negative":       {func(_ int, b []byte) io.Reader { return offset(b, piece(b), 1<<63) }, bourse.CodeInvalid},
		"overlapping":    {func(_ int, b []byte) io.Reader { return offset(b, piece(b)+second, 0) }, bourse.CodeInvalid},
		"odd offset":     {func(_ int, b []byte) io.Reader { return offset(b, piece(b)+second, 3*pieceBytes+1) }, bourse.CodeInvalid},
		"too large":      {func(_ int, b []byte) io.Reader { return head(b, func(h *header) { h.Bytes = 2 * gib }) }, bourse.CodeInvalid},
		"no size":        {func(_ int, b []byte) io.Reader { return head(b, func(h *header) { h.Bytes = -4096 }) }, bourse.CodeInvalid},
		"encrypted":      {func(_ int, b []byte) io.Reader { return head(b, func(h *header) { h.Encrypted = true }) }, bourse.CodeInvalid},
		"no file system": {func(_ int, b []byte) io.Reader {
			h, _ := readHeader(bufio.NewReader(bytes.NewReader(b)))
			s := newSum(&h.content)
			return bytes.NewReader(append(binary.BigEndian.AppendUint64(b[:piece(b):piece(b)], uint64(h.Bytes)), s.Sum(nil)...))
		}, bourse.CodeFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, inMemory(t))
			err := s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, spoiled(remote(from, string(vol1)), c.spoil))
			if c.want == "" {
				must(t, err)
				checkMarks(t, s, vol2, 1)
			} else {
				wantCode(t, err, c.want)
				wantCode(t, s.requireComplete(string(vol2)), bourse.CodeNotFound)
			}
			must(t, s.Destroy(t.Context(), vol2))
			if left := leftovers(t, s.dir); len(left) > 0 {
				t.Errorf("files left: %q", left)
			}
		})
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }

// TestFillResumes has a source fail permanently, restarts both sides, and fills the volume again.
// Data that has arrived must not be sent again.
func TestFillResumes(t *testing.T) {
	for _, mounted := range []bool{false, true} {
		t.Run(fmt.Sprintf("mounted=%t", mounted), func(t *testing.T) {
			from, s := open(t, inMemory(t)), open(t, inMemory(t))
			create(t, from, vol1)
			write(t, filepath.Join(mount(t, from, vol1), "a"), noise(1, 60<<20))
			if !mounted {
				must(t, from.Unmount(t.Context(), vol1))
			}
			order := bourse.VolumeOrder{SizeGB: 1}
			var sent []int
			half := 0
			src := spoiled(remote(from, string(vol1)), func(_ int, b []byte) io.Reader {
				sent = append(sent, len(b))
				if half = len(b) / 2; len(sent) == 1 {
					return broken(b[:half])
				}
				return broken(b[:100])
			})
			wantCode(t, s.Fill(t.Context(), vol2, order, src), bourse.CodeUnavailable)
			for _, x := range []*Store{from, s} {
				must(t, x.Recover(t.Context(), func(string) bool { return true }))
			}
			must(t, s.Fill(t.Context(), vol2, order, spoiled(remote(from, string(vol1)), func(_ int, b []byte) io.Reader {
				sent = append(sent, len(b))
				return bytes.NewReader(b)
			})))
			if last := sent[len(sent)-1]; last > sent[0]/2+2*pieceBytes {
				t.Errorf("%d bytes were sent, %d of them for the second time", sent[0], last)
			}
			checkImage(t, image(s, string(vol2)))
			if read(t, filepath.Join(mount(t, s, vol2), "a")) != string(noise(1, 60<<20)) {
				t.Error("the file has the wrong contents")
			}
		})
	}
}

// TestSourceChanges changes the source's volume while it is read in place. The copy must nevertheless be consistent
// with a single point in time.
func TestSourceChanges(t *testing.T) {
	from, s := open(t, inMemory(t)), open(t, inMemory(t))
	create(t, from, vol1)
	dir := mount(t, from, vol1)
	for n := range 8 {
		write(t, filepath.Join(dir, name(n)), noise(n, 4<<20))
	}
	must(t, from.Unmount(t.Context(), vol1))
	var once sync.Once
	streams := 0
	src := remote(from, string(vol1))
	must(t, s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, func(ctx context.Context, at Position) (io.ReadCloser, error) {
		streams++
		r, err := src(ctx, at)
		if err != nil {
			return nil, err
		}
		first := make([]byte, 1<<20)
		if _, err := io.ReadFull(r, first); err != nil {
			return nil, err
		}
		once.Do(func() {
			dir := mount(t, from, vol1)
			for n := range 6 {
				write(t, filepath.Join(dir, name(n)), noise(100+n, 4<<20))
			}
			must(t, os.Remove(filepath.Join(dir, name(7))))
		})
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(first), r), r}, nil
	}))
	if streams < 2 {
		t.Error("there was only one stream")
	}
	checkImage(t, image(s, string(vol2)))
	dir = mount(t, s, vol2)
	for n, want := range map[int]int{0: 100, 5: 105, 6: 6} {
		if read(t, filepath.Join(dir, name(n))) != string(noise(want, 4<<20)) {
			t.Errorf("file %d does not have its last contents", n)
		}
	}
}

// TestFullDisk fills the host's disk before each operation. The operation must fail and leave
// nothing behind, and succeed once there is space.
func TestFullDisk(t *testing.T) {
	from := open(t, inMemory(t))
	create(t, from, vol1)
	write(t, filepath.Join(mount(t, from, vol1), "a"), noise(1, 40<<20))
	must(t, from.Unmount(t.Context(), vol1))
	dir := smallFS(t, 64)
	s := open(t, dir)
	create(t, s, vol1)
	write(t, filepath.Join(mount(t, s, vol1), "a"), noise(1, 20<<20))
	before := strings.Join(onHost(t, s.dir), "\n")
	ballast := filepath.Join(dir, "ballast")
	for name, do := range map[string]func() error{
		"create":   func() error { return s.Create(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 10}) },
		"scratch":  func() error { _, err := s.Scratch(t.Context(), mach1, 64<<10); return err },
		"snapshot": func() error { _, err := s.Snapshot(t.Context(), vol1, snap1); return err },
		"export":   func() error { return s.Export(t.Context(), string(vol1), Position{}, io.Discard) },
		"fill": func() error {
			return s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, remote(from, string(vol1)))
		},
		"fill by clone": func() error { return s.Copy(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, string(vol1)) },
	} {
		t.Run(name, func(t *testing.T) {
			fill(t, ballast)
			wantCode(t, do(), bourse.CodeInsufficient)
			must(t, os.Remove(ballast))
			if after := strings.Join(onHost(t, s.dir), "\n"); after != before {
				t.Errorf("on the host\n%s\nwant\n%s", after, before)
			}
			if name == "fill" { // the 40 MiB do not fit into the remaining space of 64 MiB
				return
			}
			must(t, do())
			must(t, s.Destroy(t.Context(), vol2))
			must(t, s.RemoveSnapshot(t.Context(), snap1))
			must(t, s.RemoveScratch(t.Context(), mach1))
			forks, err := s.forksOf(string(vol1))
			must(t, err)
			for _, f := range forks {
				must(t, s.removeFork(f))
			}
		})
	}
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for {
		if _, err := f.Write(noise(0, 64<<10)); err != nil {
			break
		}
	}
	for { // fill the rest, which is too small for a large piece
		if _, err := f.Write([]byte("x")); err != nil {
			break
		}
	}
	_ = f.Sync() // fails, because the disk is full
	must(t, f.Close())
}
