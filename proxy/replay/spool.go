package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/tempdir"
)

// Limits limits the storage for request bodies. Zero fields mean the defaults.
type Limits struct {
	PerRequest int64 // bytes of one body; default 64 MiB
	InMemory   int64 // bytes of one body to keep in memory before using a file; default 64 KiB
	Memory     int64 // bytes of all bodies in memory; default 64 MiB
	Files      int64 // bytes of all bodies in files; default 1 GiB
	OpenFiles  int64 // number of open files; default 4096
}

func (l *Limits) setDefaults() {
	for _, d := range []struct {
		value *int64
		usual int64
	}{{&l.PerRequest, 64 << 20}, {&l.InMemory, 64 << 10}, {&l.Memory, 64 << 20}, {&l.Files, 1 << 30}, {&l.OpenFiles, 4096}} {
		if *d.value <= 0 {
			*d.value = d.usual
		}
	}
}

// Spools stores request bodies as they are sent, so that they can be sent again. The start of each body is stored in
// memory, and the rest in an unnamed file, which disappears when the process exits or crashes. Spools is safe for
// concurrent use.
type Spools struct {
	limits Limits
	dir    *tempdir.Dir
	log    *slog.Logger

	memory, files, open atomic.Int64
}

const spoolPrefix = "bourse-spool-"

// OpenSpools creates a directory for the files. The new directory is below parent or, if parent is empty, below the
// system's directory for temporary files. OpenSpools also removes directories left behind by killed processes.
func OpenSpools(parent string, limits Limits, log *slog.Logger) (*Spools, error) {
	parent = cmp.Or(parent, os.TempDir())
	limits.setDefaults()
	if _, err := tempdir.RemoveLeftover(parent, spoolPrefix, func(string) error { return nil }); err != nil {
		log.Warn("remove leftover spools failed", "err", err)
	}
	dir, err := tempdir.Make(parent, spoolPrefix)
	if err != nil {
		return nil, fmt.Errorf("create spool directory: %w", err)
	}
	return &Spools{limits: limits, dir: dir, log: log}, nil
}

// Close removes the directory. A Spool that is still open keeps its data, but discards the data if it later needs to
// create a file.
func (s *Spools) Close() error { return s.dir.Remove() }

// Usage returns the number of bytes stored in memory and in files.
func (s *Spools) Usage() (memory, files int64) { return s.memory.Load(), s.files.Load() }

// reserve adds n to sum and returns true, or returns false if the result would exceed limit.
func reserve(sum *atomic.Int64, n, limit int64) bool {
	if sum.Add(n) > limit {
		sum.Add(-n)
		return false
	}
	return true
}

// New returns an empty spool.
func (s *Spools) New() *Spool { return &Spool{spools: s} }

// Spool stores the part of a request's body that has been read so far. It is not safe for
// concurrent use.
type Spool struct {
	spools *Spools
	memory []byte
	file   *os.File // data that does not fit into memory
	size   int64
	opened bool // the file is counted in Spools.open
	closed bool
}

// Len returns the number of bytes stored.
func (b *Spool) Len() int64 { return b.size }

// Append adds p to the stored data. If this would exceed a limit, it discards all data and returns
// CodeFailedPrecondition.
func (b *Spool) Append(p []byte) error {
	err := b.append(p)
	if err != nil {
		b.Close()
	}
	return err
}

func (b *Spool) append(p []byte) error {
	s, n := b.spools, int64(len(p))
	switch {
	case b.closed:
		return discardedf("the request's body is no longer stored")
	case b.size+n > s.limits.PerRequest:
		return discardedf("the request's body is larger than %d bytes", s.limits.PerRequest)
	case b.file == nil && b.size+n <= s.limits.InMemory && reserve(&s.memory, n, s.limits.Memory):
		b.memory = append(b.memory, p...)
		b.size += n
		return nil
	case !reserve(&s.files, n, s.limits.Files):
		return discardedf("the proxy's storage for request bodies is full (%d bytes)", s.limits.Files)
	case !b.opened && !reserve(&s.open, 1, s.limits.OpenFiles):
		s.files.Add(-n)
		return discardedf("the proxy has too many stored request bodies (%d files)", s.limits.OpenFiles)
	}
	b.opened = true
	b.size += n // counted even if the write fails, because Close subtracts the reserved bytes
	if err := b.write(p, b.size-n-int64(len(b.memory))); err != nil {
		s.log.Warn("write spool failed", "err", err)
		return discardedf("the request's body could not be stored")
	}
	return nil
}

func discardedf(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, format, args...)
}

func (b *Spool) write(p []byte, at int64) error {
	if b.file == nil {
		f, err := os.CreateTemp(b.spools.dir.Path, "")
		if err != nil {
			return err
		}
		if err = os.Remove(f.Name()); err != nil {
			return errors.Join(err, f.Close())
		}
		b.file = f
	}
	_, err := b.file.WriteAt(p, at)
	return err
}

// ReadAt reads stored data from offset at, which must be less than [Spool.Len]. It may return fewer bytes than fit
// into p, even if more are stored.
func (b *Spool) ReadAt(p []byte, at int64) (int, error) {
	if at < int64(len(b.memory)) {
		return copy(p, b.memory[at:]), nil
	}
	if b.file == nil || at >= b.size {
		return 0, discardedf("the request's body is no longer stored")
	}
	return b.file.ReadAt(p[:min(int64(len(p)), b.size-at)], at-int64(len(b.memory)))
}

// Close discards the stored data. Subsequent calls have no effect.
func (b *Spool) Close() {
	if b.closed {
		return
	}
	b.closed = true
	b.spools.memory.Add(-int64(len(b.memory)))
	b.spools.files.Add(-(b.size - int64(len(b.memory))))
	if b.opened {
		b.spools.open.Add(-1)
	}
	if b.file != nil {
		_ = b.file.Close() // ignore errors: the file is not read again
	}
	b.memory, b.file, b.size = nil, nil, 0
}
