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

// Limits bound what is remembered of requests' bodies. Each has a default.
type Limits struct {
	PerRequest int64 // bytes of one body; default 64 MiB
	InMemory   int64 // bytes of one body before its file begins; default 64 KiB
	Memory     int64 // bytes of all in memory; default 64 MiB
	Files      int64 // bytes of all in files; default 1 GiB
	OpenFiles  int64 // files at once; default 4096
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

// Spools remember bodies while they are sent, so that they can be sent again: the
// beginning in memory, the rest in a file without a name, which is gone when the
// process is, however it ends. Safe for concurrent use.
type Spools struct {
	limits Limits
	dir    *tempdir.Dir
	log    *slog.Logger

	memory, files, open atomic.Int64
}

const spoolPrefix = "bourse-spool-"

// OpenSpools makes the directory of the files below parent (empty: the system's for
// temporary files), and removes what killed processes left there.
func OpenSpools(parent string, limits Limits, log *slog.Logger) (*Spools, error) {
	parent = cmp.Or(parent, os.TempDir())
	limits.setDefaults()
	if _, err := tempdir.RemoveLeft(parent, spoolPrefix, func(string) error { return nil }); err != nil {
		log.Warn("remove left spools failed", "err", err)
	}
	dir, err := tempdir.Make(parent, spoolPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory for spools: %w", err)
	}
	return &Spools{limits: limits, dir: dir, log: log}, nil
}

// Close removes the directory. Spools that are in use keep what they have; those that
// need a file afterwards forget.
func (s *Spools) Close() error { return s.dir.Remove() }

// Held returns the bytes that are remembered now, in memory and in files.
func (s *Spools) Usage() (memory, files int64) { return s.memory.Load(), s.files.Load() }

// take adds n to a sum that may be at most limit, or returns false.
func reserve(sum *atomic.Int64, n, limit int64) bool {
	if sum.Add(n) > limit {
		sum.Add(-n)
		return false
	}
	return true
}

// New returns an empty spool.
func (s *Spools) New() *Spool { return &Spool{spools: s} }

// Spool is the beginning of one request's body, as far as it was read. It is for one
// goroutine at a time.
type Spool struct {
	spools *Spools
	memory []byte
	file   *os.File // begins where the memory ends
	size   int64
	opened bool // it counts among the open files
	closed bool
}

// Len returns how many bytes are remembered.
func (b *Spool) Len() int64 { return b.size }

// Append remembers p behind what is remembered. CodeFailedPrecondition, with a
// sentence, when a limit is reached: then nothing is remembered any more.
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
		return discardedf("the request's body is not remembered any more")
	case b.size+n > s.limits.PerRequest:
		return discardedf("the request's body is larger than %d bytes", s.limits.PerRequest)
	case b.file == nil && b.size+n <= s.limits.InMemory && reserve(&s.memory, n, s.limits.Memory):
		b.memory = append(b.memory, p...)
		b.size += n
		return nil
	case !reserve(&s.files, n, s.limits.Files):
		return discardedf("the proxy remembers no more bodies now: all of them have %d bytes", s.limits.Files)
	case !b.opened && !reserve(&s.open, 1, s.limits.OpenFiles):
		s.files.Add(-n)
		return discardedf("the proxy remembers no more bodies now: %d have files", s.limits.OpenFiles)
	}
	b.opened = true
	b.size += n // Close gives both back, written or not
	if err := b.write(p, b.size-n-int64(len(b.memory))); err != nil {
		s.log.Warn("write spool failed", "err", err)
		return discardedf("the request's body could not be remembered")
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

// ReadAt reads what is remembered from an offset on, which is below [Spool.Len]. It
// may return less than there is.
func (b *Spool) ReadAt(p []byte, at int64) (int, error) {
	if at < int64(len(b.memory)) {
		return copy(p, b.memory[at:]), nil
	}
	if b.file == nil || at >= b.size {
		return 0, discardedf("the request's body is not remembered any more")
	}
	return b.file.ReadAt(p[:min(int64(len(p)), b.size-at)], at-int64(len(b.memory)))
}

// Close forgets what is remembered. It may be called twice.
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
		_ = b.file.Close() // it has no name, and no one reads it again
	}
	b.memory, b.file, b.size = nil, nil, 0
}
