package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/bourse-dev/bourse/view/schema"
)

// errFileGone means that the file was deleted or replaced.
var errFileGone = errors.New("the file has been deleted or replaced")

// checkFile returns an error if the path no longer refers to the open file. SQLite would continue to write to a
// deleted file.
func (w *writer) checkFile() error {
	if w.view.config.Path == "" {
		return nil
	}
	if w.file == nil {
		return errNoFile
	}
	info, err := os.Stat(w.view.config.Path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(info, w.file.Info) {
		return errFileGone
	}
	return nil // a temporarily unreadable directory is not a reason to replace the file
}

// replace creates a new file in place of a damaged or deleted one. The new file does not contain this server's rows, so
// a new epoch begins and the channel returned by RowsLost is closed. If the file cannot be created, the next check
// tries again.
func (w *writer) replace(cause error) {
	if !errors.Is(cause, errNoFile) {
		w.view.config.Log.Error("view's file damaged or deleted; replacing it", slog.String("path", w.view.config.Path), slog.Any("err", cause))
	}
	if err := w.renewFile(); err != nil {
		w.setWriteError(err)
		w.backOff()
		return
	}
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	w.backOff() // delay the next write, in case the new file cannot be written either
	w.view.faults.writing = nil
	w.view.faults.reading = nil
	w.view.intake.reset()
	w.view.ring = newRing(ringBytes)
	for site, p := range w.view.sites.seen {
		p.written = 0
		w.view.sites.seen[site] = p
		w.view.sites.unwritten[site] = true
	}
	close(w.view.lost)
	w.view.lost = make(chan struct{})
	w.view.wakeWatchers(nil)
}

func (w *writer) renewFile() error {
	defer w.view.pool.Exclusive()()
	if w.file != nil {
		_ = w.file.Close() // the file is unusable anyway
		w.file = nil
		if err := schema.MoveAside(w.view.config.Path); err != nil {
			return fmt.Errorf("move the view's file aside: %w", err)
		}
	}
	return w.openFile(w.view.state.self.Epoch)
}
