package kv

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkExamine is what a start with 10 000 machines pays for the look at
// every page and value.
func BenchmarkExamine(b *testing.B) {
	dir := b.TempDir()
	d, err := openConfig(Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < 10_000; n += 500 {
		update(b, d, func(tx Tx) error {
			for i := n; i < n+500; i++ {
				if err := putLarge(i, 2<<10)(tx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if e := examine(f, info.Size(), nil); len(e.damage) > 0 || e.keys < 10_000 {
			b.Fatalf("%d keys, damage %v", e.keys, e.damage)
		}
	}
	b.ReportMetric(float64(info.Size()>>20), "MiB")
}
