package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/bourse-dev/bourse/view/schema"
)

// errVanished means that the file was deleted or replaced.
var errVanished = errors.New("the file has been deleted or replaced")

// checkFile checks that the path still refers to the open file. SQLite would continue to write to a deleted file.
func (w *writer) checkFile() error {
	if w.v.config.Path == "" {
		return nil
	}
	if w.file == nil {
		return errNoFile
	}
	info, err := os.Stat(w.v.config.Path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(info, w.file.Info) {
		return errVanished
	}
	return nil // a temporarily unreadable directory is not a reason to replace the file
}

// replace creates a new file in place of a damaged or deleted one. The new file does not contain
// this server's rows, so a new epoch begins and the channel returned by Lost is closed. If the
// file cannot be created, the next check tries again.
func (w *writer) replace(cause error) {
	if !errors.Is(cause, errNoFile) {
		w.v.config.Log.Error("replacing the lost file of the view", slog.String("path", w.v.config.Path), slog.Any("err", cause))
	}
	if err := w.renewFile(); err != nil {
		w.setWriteError(err)
		w.backOff()
		return
	}
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	w.backOff() // delay the next write in case the new file cannot be written either
	w.v.faults.writing = nil
	w.v.faults.reading = nil
	w.v.intake.reset()
	w.v.ring = newRing(w.v.config.RingBytes)
	for site, p := range w.v.sites.seen {
		p.written = 0
		w.v.sites.seen[site] = p
		w.v.sites.unwritten[site] = true
	}
	close(w.v.lost)
	w.v.lost = make(chan struct{})
	w.v.wakeWatchers(nil)
}

func (w *writer) renewFile() error {
	defer w.v.pool.Exclusive()()
	if w.file != nil {
		_ = w.file.Close() // the file is unusable anyway
		w.file = nil
		if err := schema.MoveAside(w.v.config.Path); err != nil {
			return fmt.Errorf("move the view's file aside: %w", err)
		}
	}
	return w.openFile(w.v.state.self.Epoch)
}
