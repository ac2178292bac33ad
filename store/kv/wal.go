package kv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// wal is the write-ahead log: two files that take turns. A commit is one record
// at the end of the present one, durable after one sync that has nothing but
// its own bytes to write: the files' places on the disk are known before.
// While a checkpoint writes a snapshot of all that one file records, the other one
// takes what comes; then the first begins again, over its old records. Its methods are called by one goroutine.
type wal struct {
	files    [2]*os.File
	sizes    [2]int64 // bytes of each that have a place on the disk
	turnSize int64    // how much of each is used, at least, before the other is
	now      int      // which of them takes records
	end      int64    // of the last record in it
	seq      uint64   // of the last record
	media    media
	salt     salt
}

const (
	// walSize is how much of a file is used, at least, before the other is. A file
	// that must grow grows by as much.
	walSize = 4 << 20
	// walMax bounds a file that must take more, because the checkpoint of the
	// other one does not end.
	walMax = 256 << 20
)

// walNames are the names of the files in the store's directory.
var walNames = [2]string{"worker.wal.0", "worker.wal.1"}

// openWAL opens the files, and makes those that are missing. turnSize is walSize
// when it is 0.
func openWAL(dir string, turnSize int64) (*wal, error) {
	w := &wal{turnSize: cmp.Or(turnSize, walSize), media: realDisk()}
	for i, name := range walNames {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			w.files[i] = f
			w.sizes[i], err = reserve(f, w.reserved())
		}
		if err != nil {
			return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "open the write-ahead log: %w", err), w.close())
		}
	}
	return w, nil
}

func (w *wal) close() error {
	var errs []error
	for _, f := range w.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// append writes a record and waits for the disk. record has space for the header
// at its beginning. After errNotSynced the log must not be used any more; after
// any other error nothing was written.
func (w *wal) append(record []byte) error {
	end := w.end + int64(len(record))
	if end > walMax {
		return fmt.Errorf("the write-ahead log has %d MiB", w.end>>20)
	}
	f := w.files[w.now]
	if err := w.grow(end + walHeader); err != nil { // for the mark behind it, too
		return err
	}
	w.salt.putHead(record, record[walHeader:], w.seq+1)
	switch n, err := w.media.writeAt(f, record, w.end); {
	case err != nil && n == 0 && full(err):
		return err
	case err != nil: // some of it may be there, or all but the answer
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	if err := w.media.sync(f); err != nil {
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	w.end, w.seq = end, w.seq+1
	// That it was synced is written, too, before anyone receives that, so that a
	// last record that is damaged is not taken for one that was never whole. It
	// is not waited for: a process that is killed leaves it, and a loss of power
	// leaves the mark of a moment ago. An error shows at the next record.
	var mark [walHeader]byte
	w.salt.putHead(mark[:], nil, w.seq)
	_, _ = w.media.writeAt(f, mark[:], end)
	return nil
}

// reserved is how much of each file has a place on the disk from the beginning: on a
// disk that is full there is space for the record that is the last before the turn.
func (w *wal) reserved() int64 { return w.turnSize + w.turnSize/4 }

// grow reserves space for the present file on the disk up to end: for some
// records more, or for this one alone when the disk has no more.
func (w *wal) grow(end int64) error {
	have := w.sizes[w.now]
	if end <= have {
		return nil
	}
	size := (end + w.turnSize - 1) / w.turnSize * w.turnSize
	err := allocate(w.files[w.now], have, size-have)
	if err != nil && size > end {
		size, err = end, allocate(w.files[w.now], have, end-have)
	}
	if err == nil {
		w.sizes[w.now] = size
	}
	return err
}

// growAhead sees to it that what the present file has a place for is more than
// the next records need, so that there is still some on a disk that is full now.
func (w *wal) growAhead() error {
	return w.grow(min(w.end+w.turnSize/2, walMax))
}

// full reports whether to switch files and write a snapshot: when the present file is as
// large as the last snapshot. A byte in the log then costs about one byte in snapshots,
// however large the store is.
func (w *wal) full(snapshot int64) bool { return w.end >= max(w.turnSize, min(snapshot, walMax/2)) }

// turn switches to the beginning of the other file, whose records must be in the
// snapshot already.
func (w *wal) turn() error {
	w.now, w.end = 1-w.now, 0
	if w.sizes[w.now] <= w.reserved() {
		return nil
	}
	w.sizes[w.now] = w.reserved()
	return w.files[w.now].Truncate(w.reserved())
}
