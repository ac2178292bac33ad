package admission

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Live is what was read from files, and is read again when they change. What
// was read last and made sense stays until something else does.
type Live[T any] struct {
	files   []string
	read    func() (T, error)
	changed func(T) error
	current atomic.Pointer[T]

	mu   sync.Mutex // held while files are looked at
	used string     // stamp of the files that were read last
	seen string     // stamp at the last look
}

// NewLive reads the files. From then on Look reads them again once they have
// changed; what it read is handed to changed, which may refuse it. Changed may
// be nil.
func NewLive[T any](files []string, read func() (T, error), changed func(T) error) (*Live[T], error) {
	l := &Live[T]{files: files, read: read, changed: changed}
	l.used = stamp(files)
	l.seen = l.used
	v, err := read()
	if err != nil {
		return nil, err
	}
	l.current.Store(&v)
	return l, nil
}

// still is something that never changes.
func still[T any](v T) *Live[T] {
	l := &Live[T]{}
	l.current.Store(&v)
	return l
}

// Get returns what was read last.
func (l *Live[T]) Get() T { return *l.current.Load() }

// Files names the files.
func (l *Live[T]) Files() []string { return l.files }

// Look reads the files again if they have changed, and reports whether what
// they hold is now in use. A change counts once two looks have found the same:
// a certificate and its key are not replaced at one instant. The error of files that
// cannot be used is returned once for each change.
func (l *Live[T]) Look() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := stamp(l.files)
	settled := now == l.seen
	l.seen = now
	if !settled || now == l.used {
		return false, nil
	}
	l.used = now
	v, err := l.read()
	if err != nil {
		return false, err
	}
	if l.changed != nil {
		if err := l.changed(v); err != nil {
			return false, err
		}
	}
	l.current.Store(&v)
	return true, nil
}

// stamp changes when a file does. A missing one has a stamp, too.
func stamp(files []string) string {
	var b strings.Builder
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			b.WriteString("none;")
			continue
		}
		fmt.Fprintf(&b, "%d %d %s;", info.Size(), info.ModTime().UnixNano(), inode(info.Sys()))
	}
	return b.String()
}

// Watched is a Live of any kind.
type Watched interface {
	Files() []string
	Look() (changed bool, err error)
}

// watchEvery is the time between looks at files: a change is in use after two.
const watchEvery = time.Second

// Watch looks at the files of all until ctx ends. What cannot be used is
// logged once.
func Watch(ctx context.Context, log *slog.Logger, all ...Watched) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range all {
			switch changed, err := w.Look(); {
			case err != nil:
				log.Warn("changed files cannot be used: what was read before stays", slog.Any("files", w.Files()), slog.Any("err", err))
			case changed:
				log.Info("read changed files again", slog.Any("files", w.Files()))
			}
		}
	}
}
