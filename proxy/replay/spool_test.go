package replay_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/replay"
)

func spools(t *testing.T, l replay.Limits) (*replay.Spools, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := replay.OpenSpools(dir, l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("remaining files: %v", left)
		}
		if m, f := s.Usage(); m != 0 || f != 0 {
			t.Errorf("at the end: %d bytes in memory, %d in files", m, f)
		}
	})
	return s, dir
}

// readAll reads a spool through small buffers. size is the size of a buffer.
func readAll(t *testing.T, b *replay.Spool, size int) []byte {
	t.Helper()
	var out []byte
	p := make([]byte, size)
	for int64(len(out)) < b.Len() {
		n, err := b.ReadAt(p, int64(len(out)))
		if err != nil || n == 0 {
			t.Fatalf("read at %d: %d, %v", len(out), n, err)
		}
		out = append(out, p[:n]...)
	}
	return out
}

// TestSpool checks that the stored data can be read back byte for byte, wherever the file begins,
// and that the files have no names.
func TestSpool(t *testing.T) {
	s, dir := spools(t, replay.Limits{InMemory: 1000})
	var wg sync.WaitGroup
	for size := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(size)))
			b := s.New()
			defer b.Close()
			var want []byte
			for len(want) < size*900 {
				p := make([]byte, random.IntN(700))
				for i := range p {
					p[i] = byte(random.Uint32())
				}
				if err := b.Append(p); err != nil {
					t.Error(err)
					return
				}
				want = append(want, p...)
			}
			for range 2 {
				if got := readAll(t, b, 1+random.IntN(999)); !bytes.Equal(got, want) {
					t.Errorf("%d bytes are not the %d that were written", len(got), len(want))
				}
			}
			if _, err := b.ReadAt(make([]byte, 1), b.Len()); err == nil {
				t.Error("read beyond the end: no error")
			}
		})
	}
	wg.Wait()
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "[^.]*")); len(files) > 0 {
		t.Errorf("files with a name: %v", files)
	}
}

// TestSpoolLimits checks the error for exceeding each limit, and that storage is released.
func TestSpoolLimits(t *testing.T) {
	s, _ := spools(t, replay.Limits{PerRequest: 100, InMemory: 40, Memory: 60, Files: 120})
	ten := []byte("0123456789")
	grow := func(b *replay.Spool, n int) (err error) {
		for range n {
			if err = b.Append(ten); err != nil {
				return err
			}
		}
		return nil
	}
	large := s.New()
	if err := grow(large, 10); err != nil {
		t.Fatal(err)
	}
	if err := large.Append(ten); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "larger than 100") {
		t.Errorf("write beyond the limit: %v", err)
	}
	if err := large.Append(ten); err == nil {
		t.Error("write after the error: no error")
	}
	if m, f := s.Usage(); m != 0 || f != 0 || large.Len() != 0 {
		t.Errorf("bytes in memory, bytes in files, length: %d, %d, %d", m, f, large.Len())
	}
	a, b := s.New(), s.New()
	defer a.Close()
	defer b.Close()
	if err := grow(a, 10); err != nil { // 40 bytes are in memory and 60 in the file
		t.Fatal(err)
	}
	if err := grow(b, 8); err != nil { // 20 bytes are in memory, which is then full, and 60 in the file
		t.Fatal(err)
	}
	if m, f := s.Usage(); m != 60 || f != 120 {
		t.Errorf("%d bytes in memory, %d in files", m, f)
	}
	if got := readAll(t, b, 7); !bytes.Equal(got, bytes.Repeat(ten, 8)) {
		t.Errorf("read %q", got)
	}
	if err := b.Append(ten); err == nil || !strings.Contains(err.Error(), "storage for request bodies is full") {
		t.Errorf("full: %v", err)
	}
}

// TestSpoolsAfterAKill checks that a new process removes a killed process's directory, and nothing else.
func TestSpoolsAfterAKill(t *testing.T) {
	if parent := os.Getenv("SPOOLS_PARENT"); parent != "" {
		s, err := replay.OpenSpools(parent, replay.Limits{InMemory: 1}, slog.New(slog.DiscardHandler))
		if err == nil {
			err = s.New().Append([]byte("body"))
		}
		if err != nil {
			t.Fatal(err)
		}
		p, _ := os.FindProcess(os.Getpid())
		_ = p.Kill()
		select {}
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSpoolsAfterAKill$")
	cmd.Env = append(os.Environ(), "SPOOLS_PARENT="+dir)
	if err := cmd.Run(); err == nil {
		t.Fatal("the process was not killed")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	files, _ := filepath.Glob(filepath.Join(dir, "*", "[^.]*"))
	if len(left) != 1 || len(files) != 0 {
		t.Fatalf("remaining: %v, %v; want one directory without files", left, files)
	}
	s, err := replay.OpenSpools(dir, replay.Limits{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left[0]); err == nil {
		t.Error("the directory was not removed")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
