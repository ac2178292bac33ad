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

// Live is a value that is read from files, and read again when they change. If the new
// files are invalid, the previous value remains in use.
type Live[T any] struct {
	files   []string
	read    func() (T, error)
	changed func(T) error
	current atomic.Pointer[T]

	mu   sync.Mutex // locked while the files are checked
	used string     // stamp of the files when they were last read
	seen string     // stamp of the files at the last call of Look
}

// NewLive returns a Live with the value that read returns, which must come from the given files. If
// the files change, [Live.Look] calls read again and passes the new value to changed. If changed
// returns an error, the previous value remains in use. changed may be nil.
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

// unchanging returns a Live that never changes.
func unchanging[T any](v T) *Live[T] {
	l := &Live[T]{}
	l.current.Store(&v)
	return l
}

// Get returns the current value.
func (l *Live[T]) Get() T { return *l.current.Load() }

// Files returns the paths of the files.
func (l *Live[T]) Files() []string { return l.files }

// Look reloads the files if they have changed, and reports whether it put a new value into use.
// Because a certificate and its key cannot be replaced at the same instant, Look waits for changes
// to settle: it reads the files only if they have not changed since the previous call. If the
// changed files are invalid, only the first call that reads them returns the error.
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

// stamp returns a string that changes if one of the files changes, appears or disappears.
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

// Watched is implemented by every [Live].
type Watched interface {
	Files() []string
	Look() (changed bool, err error)
}

// watchEvery is the interval between calls to Look. A change takes effect at the second call that
// detects it.
const watchEvery = time.Second

// Watch calls Look on each value at regular intervals until ctx is canceled, and logs changes and
// errors.
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
				log.Warn("reload changed files failed, keeping the previous version", slog.Any("files", w.Files()), slog.Any("err", err))
			case changed:
				log.Info("changed files loaded", slog.Any("files", w.Files()))
			}
		}
	}
}
