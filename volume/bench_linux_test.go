package volume

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// remote returns a Source of a volume or snapshot in another store, as if that store was on
// another host.
func remote(from *Store, id string) Source {
	return func(ctx context.Context, at Position) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(from.Export(ctx, id, at, w)) }()
		return r, nil
	}
}

// BenchmarkFork durably fills a volume with the contents of a volume in another store, and
// compares that with cp and sync of the same image.
func BenchmarkFork(b *testing.B) {
	const data = 256 << 20
	store := func() *Store {
		s, err := Open(Config{Dir: b.TempDir()})
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { _ = s.Recover(context.Background(), func(string) bool { return false }) })
		return s
	}
	from, to := store(), store()
	order := bourse.VolumeOrder{SizeGB: 1}
	if err := from.Create(b.Context(), vol1, order); err != nil {
		b.Fatal(err)
	}
	dir, err := from.Mount(b.Context(), vol1)
	if err == nil {
		err = writeFile(filepath.Join(dir, "a"), noise(1, data))
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, mounted := range []bool{true, false} {
		b.Run(fmt.Sprintf("mounted=%t", mounted), func(b *testing.B) {
			if !mounted {
				if err := from.Unmount(b.Context(), vol1); err != nil {
					b.Fatal(err)
				}
			}
			var forking, copying time.Duration
			for b.Loop() {
				began := time.Now()
				if err := to.Fill(b.Context(), vol2, order, remote(from, string(vol1))); err != nil {
					b.Fatal(err)
				}
				forking += time.Since(began)
				dst := filepath.Join(b.TempDir(), "copy")
				began = time.Now()
				if out, err := exec.Command("sh", "-c", `cp --sparse=always "$0" "$1" && sync "$1" && rm "$1"`, image(from, string(vol1)), dst).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				copying += time.Since(began)
				if err := to.Destroy(b.Context(), vol2); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*data/(1<<20)/forking.Seconds(), "MiB/s")
			b.ReportMetric(copying.Seconds()/forking.Seconds(), "of-cp")
		})
	}
}

// BenchmarkCreate creates, mounts and destroys an empty volume.
func BenchmarkCreate(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if err := s.Create(b.Context(), vol1, bourse.VolumeOrder{SizeGB: 10}); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Mount(b.Context(), vol1); err != nil {
			b.Fatal(err)
		}
		if err := s.Destroy(b.Context(), vol1); err != nil {
			b.Fatal(err)
		}
	}
}
