package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/bourse-dev/bourse/view/schema"
)

// errVanished is a file that was deleted or replaced.
var errVanished = errors.New("the file has been deleted or replaced")

// checkFile checks that the file is still the one that we opened: SQLite
// would go on writing into one that has no name any more.
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
	return nil // a directory that cannot be read at the moment is another matter
}

// replace makes a new file in the place of one that is damaged or gone. Our
// rows are lost with it: a new epoch begins, and Lost is closed. When
// the disk refuses it is tried again at the next check.
func (w *writer) replace(cause error) {
	if !errors.Is(cause, errNoFile) {
		w.v.config.Log.Error("the view's file is lost and made again", slog.String("path", w.v.config.Path), slog.Any("err", cause))
	}
	if err := w.renewFile(); err != nil {
		w.setTrouble(err)
		w.rest()
		return
	}
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	w.rest() // should the new one fail at once too
	w.v.faults.writing = nil
	w.v.faults.reading = nil
	w.v.intake.forget()
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
		_ = w.file.Close() // it is of no use any more
		w.file = nil
		if err := schema.MoveAside(w.v.config.Path); err != nil {
			return fmt.Errorf("move the view's file aside: %w", err)
		}
	}
	return w.openFile(w.v.state.self.Epoch)
}
