package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
)

// faulty is a source that counts what is read, and may spoil it.
type faulty struct {
	Source
	manifest func(m *Manifest)                                 // optional
	chunk    func(n, try int, b []byte) (io.ReadCloser, error) // optional
	only     *int                                              // the one chunk that it spoils; optional

	mu        sync.Mutex
	manifests int
	asked     map[int]int
}

func (f *faulty) Manifest(ctx context.Context) (Manifest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manifests++
	m, err := f.Source.Manifest(ctx)
	if f.manifest != nil {
		f.manifest(&m)
	}
	return m, err
}

func (f *faulty) Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error) {
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[int]int{}
	}
	f.asked[n]++
	try := f.asked[n]
	f.mu.Unlock()
	r, err := f.Source.Chunk(ctx, n, digest)
	if err != nil || f.chunk == nil || f.only != nil && n != *f.only {
		return r, err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return f.chunk(n, try, b)
}

// total returns how many chunks were asked for.
func (f *faulty) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for _, n := range f.asked {
		sum += n
	}
	return sum
}

func reader(b []byte) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }

var errBroken = errors.New("connection broken")

// TestFaultySource has sources that break or send wrong data. The volume is whole, or it is
// not there and the error says why.
func TestFaultySource(t *testing.T) {
	from := open(t, inMemory(t))
	create(t, from, vol1)
	writeMarks(t, mount(t, from, vol1))
	must(t, from.Unmount(t.Context(), vol1))
	endless := func() io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, 64<<20)), neverEnding{}) }
	for name, c := range map[string]struct {
		manifest func(m *Manifest)
		chunk    func(n, try int, b []byte) (io.ReadCloser, error)
		want     bourse.Code
	}{
		"honest":         {},
		"wrong once":     {chunk: func(_, try int, b []byte) (io.ReadCloser, error) { b[7] ^= byte(try & 1); return reader(b) }},
		"broken once":    {chunk: func(_, try int, b []byte) (io.ReadCloser, error) { return breaking(b, try == 1) }},
		"wrong":          {chunk: func(n, _ int, b []byte) (io.ReadCloser, error) { b[n] ^= 1; return reader(b) }, want: bourse.CodeUnavailable},
		"short":          {chunk: func(_, _ int, b []byte) (io.ReadCloser, error) { return reader(b[:len(b)-1]) }, want: bourse.CodeUnavailable},
		"nothing":        {chunk: func(_, _ int, _ []byte) (io.ReadCloser, error) { return reader(nil) }, want: bourse.CodeUnavailable},
		"long":           {chunk: func(_, _ int, b []byte) (io.ReadCloser, error) { return reader(append(b, 0)) }, want: bourse.CodeUnavailable},
		"endless":        {chunk: func(_, _ int, _ []byte) (io.ReadCloser, error) { return io.NopCloser(endless()), nil }, want: bourse.CodeUnavailable},
		"broken":         {chunk: func(_, _ int, b []byte) (io.ReadCloser, error) { return breaking(b, true) }, want: bourse.CodeUnavailable},
		"gone":           {chunk: func(int, int, []byte) (io.ReadCloser, error) { return nil, bourse.Errorf(bourse.CodeNotFound, "gone") }, want: bourse.CodeNotFound},
		"contradictory":  {manifest: func(m *Manifest) { m.Chunks = m.Chunks[1:] }, want: bourse.CodeInvalid},
		"too large":      {manifest: func(m *Manifest) { m.Bytes = 2 * gib; m.Digest = m.sum() }, want: bourse.CodeInvalid},
		"encrypted":      {manifest: func(m *Manifest) { m.Encrypted = true; m.Digest = m.sum() }, want: bourse.CodeInvalid},
		"no file system": {manifest: func(m *Manifest) { m.Chunks = nil; m.Digest = m.sum() }, want: bourse.CodeFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, inMemory(t))
			src := &faulty{Source: from.Local(string(vol1)), manifest: c.manifest, chunk: c.chunk, only: new(0)}
			err := s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, src)
			if c.want == "" {
				must(t, err)
				checkMarks(t, s, vol2, 1)
			} else {
				wantCode(t, err, c.want)
				wantCode(t, s.need(string(vol2)), bourse.CodeNotFound)
			}
			must(t, s.Destroy(t.Context(), vol2))
			if left := leftovers(t, s.dir); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
		})
	}
}

// breaking returns half of a chunk and an error.
func breaking(b []byte, breaks bool) (io.ReadCloser, error) {
	if !breaks {
		return reader(b)
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), failing{})), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }

// TestFillResumes breaks a source for good, and goes on with another: what was
// fetched is not fetched again.
func TestFillResumes(t *testing.T) {
	from, s := open(t, inMemory(t)), open(t, inMemory(t))
	create(t, from, vol1)
	write(t, filepath.Join(mount(t, from, vol1), "a"), noise(1, 60<<20))
	must(t, from.Unmount(t.Context(), vol1))
	order := bourse.VolumeOrder{SizeGB: 1}
	m, err := from.Manifest(t.Context(), string(vol1))
	must(t, err)
	half := m.Chunks[len(m.Chunks)/2].N
	src := &faulty{Source: from.Local(string(vol1)), chunk: func(n, _ int, b []byte) (io.ReadCloser, error) { return breaking(b, n >= half) }}
	wantCode(t, s.Fill(t.Context(), vol2, order, src), bourse.CodeUnavailable)
	src = &faulty{Source: from.Local(string(vol1))}
	must(t, s.Fill(t.Context(), vol2, order, src))
	if got := src.total(); got > len(m.Chunks)/2+fetchers {
		t.Errorf("%d of %d chunks were fetched again", got, len(m.Chunks))
	}
	checkImage(t, image(s, string(vol2)))
	if read(t, filepath.Join(mount(t, s, vol2), "a")) != string(noise(1, 60<<20)) {
		t.Error("the file is not what was written")
	}
}

// TestSourceChanges changes the source's volume while it is read in place: the
// copy is one moment of it all the same.
func TestSourceChanges(t *testing.T) {
	from, s := open(t, inMemory(t)), open(t, inMemory(t))
	create(t, from, vol1)
	dir := mount(t, from, vol1)
	for n := range 8 {
		write(t, filepath.Join(dir, name(n)), noise(n, 4<<20))
	}
	must(t, from.Unmount(t.Context(), vol1))
	var once sync.Once
	src := &faulty{Source: from.Local(string(vol1)), chunk: func(_, _ int, b []byte) (io.ReadCloser, error) {
		once.Do(func() {
			dir := mount(t, from, vol1)
			for n := range 6 {
				write(t, filepath.Join(dir, name(n)), noise(100+n, 4<<20))
			}
			must(t, os.Remove(filepath.Join(dir, name(7))))
		})
		return reader(b)
	}}
	must(t, s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, src))
	if src.manifests < 2 {
		t.Error("the source was asked for one manifest only")
	}
	checkImage(t, image(s, string(vol2)))
	dir = mount(t, s, vol2)
	for n, want := range map[int]int{0: 100, 5: 105, 6: 6} {
		if read(t, filepath.Join(dir, name(n))) != string(noise(want, 4<<20)) {
			t.Errorf("file %d is not that of the last manifest", n)
		}
	}
}

// TestFullDisk has a host whose disk fills up while something is made. Nothing is
// left behind, and with space it succeeds.
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
		"export":   func() error { _, err := s.Manifest(t.Context(), string(vol1)); return err },
		"fill": func() error {
			return s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, from.Local(string(vol1)))
		},
		"fill by clone": func() error { return s.Fill(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 1}, s.Local(string(vol1))) },
	} {
		t.Run(name, func(t *testing.T) {
			fill(t, ballast)
			wantCode(t, do(), bourse.CodeInsufficient)
			must(t, os.Remove(ballast))
			if after := strings.Join(onHost(t, s.dir), "\n"); after != before {
				t.Errorf("on the host\n%s\nwant\n%s", after, before)
			}
			if name == "fill" { // 40 MiB do not fit into what is left of 64
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

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for {
		if _, err := f.Write(noise(0, 64<<10)); err != nil {
			break
		}
	}
	for { // what a large piece does not fit into
		if _, err := f.Write([]byte("x")); err != nil {
			break
		}
	}
	_ = f.Sync() // it is full
	must(t, f.Close())
}
