package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// errVanished is a file that somebody has deleted or replaced.
var errVanished = errors.New("the file has been deleted or replaced")

// checkFile tells whether the file is still the one that we opened: SQLite
// would go on writing into one that has no name any more.
func (v *View) checkFile() error {
	if v.config.Path == "" {
		return nil
	}
	if v.writer.file == nil {
		return errNoFile
	}
	info, err := os.Stat(v.config.Path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(info, v.writer.file.info) {
		return errVanished
	}
	return nil // a directory that cannot be read at the moment is another matter
}

// replace makes a new file in the place of one that is damaged or gone. Our
// rows are lost with it: a new epoch begins, and their owners are told. When
// the disk refuses it is tried again at the next check.
func (v *View) replace(cause error) {
	if !errors.Is(cause, errNoFile) {
		v.config.Log.Error("the view's file is lost and made anew", slog.String("path", v.config.Path), slog.Any("err", cause))
	}
	if err := v.renewFile(); err != nil {
		v.setTrouble(err)
		v.writer.rest()
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writer.rest() // should the new one fail at once too
	v.faults.writing = nil
	v.faults.reading = nil
	v.intake.forget()
	v.ring = newRing(v.config.RingBytes)
	for site, p := range v.sites.seen {
		p.written = 0
		v.sites.seen[site] = p
		v.sites.untold[site] = true
	}
	close(v.lost)
	v.lost = make(chan struct{})
	v.wakeWatchers(nil)
}

func (v *View) renewFile() error {
	defer v.pool.exclusive()()
	if v.writer.file != nil {
		_ = v.writer.file.close() // it is of no use any more
		v.writer.file = nil
		if err := moveAside(v.config.Path); err != nil {
			return fmt.Errorf("move the view's file aside: %w", err)
		}
	}
	return v.openFile(v.state.self.Epoch)
}
