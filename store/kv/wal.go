package kv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// wal is the write-ahead log: two files that are used alternately. Each commit appends one record
// to the current file and makes it durable with one sync. The sync writes only the record's own
// bytes, because disk space for the files is reserved in advance. When a checkpoint begins, new
// records go to the other file. The checkpoint writes a snapshot that includes the previous file's
// records. After that, these records may be overwritten. Only one goroutine may call the methods.
type wal struct {
	files      [2]*os.File
	sizes      [2]int64 // size of each file's reserved disk space
	switchSize int64    // size in bytes at which the log switches from one file to the other
	now        int      // index of the current file
	end        int64    // end of the last record in the current file
	seq        uint64   // number of the last record
	media      diskOps
	salt       salt
}

const (
	// walSize is the default of wal.switchSize.
	walSize = 4 << 20
	// walMax is the maximum size of a log file. A file grows beyond switchSize if the checkpoint of
	// the other file's records is still in progress.
	walMax = 256 << 20
)

// walNames are the names of the files in the store's directory.
var walNames = [2]string{"worker.wal.0", "worker.wal.1"}

// openWAL opens the log's files, creating those that do not exist. If switchSize is 0, walSize is
// used.
func openWAL(dir string, switchSize int64) (*wal, error) {
	w := &wal{switchSize: cmp.Or(switchSize, walSize), media: realDisk()}
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

// append writes a record and waits until it is durable. The record must begin with walHeader bytes,
// which append overwrites with the header. After errNotSynced, the log must no longer be used.
// After any other error, the log is unchanged.
func (w *wal) append(record []byte) error {
	end := w.end + int64(len(record))
	if end > walMax {
		return fmt.Errorf("the write-ahead log has reached its size limit: %d MiB", w.end>>20)
	}
	f := w.files[w.now]
	if err := w.grow(end + walHeader); err != nil { // end + walHeader includes the mark after the record
		return err
	}
	w.salt.putHead(record, record[walHeader:], w.seq+1)
	switch n, err := w.media.writeAt(f, record, w.end); {
	case err != nil && n == 0 && isDiskFull(err):
		return err
	case err != nil: // the record may have been written completely or in part
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	if err := w.media.sync(f); err != nil {
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	w.end, w.seq = end, w.seq+1
	// Before any caller is notified, write a mark, which records that the sync is complete. If the
	// last record had no mark and were damaged later, it would be mistaken for a record that was
	// not written completely. The mark is not synced: it survives if the process is killed, but a
	// power failure may lose the latest mark. A write error is ignored here, because the next
	// append will return it.
	var mark [walHeader]byte
	w.salt.putHead(mark[:], nil, w.seq)
	_, _ = w.media.writeAt(f, mark[:], end)
	return nil
}

// reserved returns the number of bytes that are reserved on disk for each file when it is opened.
// It is greater than switchSize, so that the last record before a switch fits even if the disk is
// full.
func (w *wal) reserved() int64 { return w.switchSize + w.switchSize/4 }

// grow reserves disk space for the current file up to the offset end. If the disk has enough space,
// grow also reserves some for later records.
func (w *wal) grow(end int64) error {
	have := w.sizes[w.now]
	if end <= have {
		return nil
	}
	size := (end + w.switchSize - 1) / w.switchSize * w.switchSize
	err := allocate(w.files[w.now], have, size-have)
	if err != nil && size > end {
		size, err = end, allocate(w.files[w.now], have, end-have)
	}
	if err == nil {
		w.sizes[w.now] = size
	}
	return err
}

// growAhead reserves disk space for later records, so that they can be written even if the disk
// becomes full.
func (w *wal) growAhead() error {
	return w.grow(min(w.end+w.switchSize/2, walMax))
}

// full reports whether the current file is large enough to start a checkpoint and switch files.
// snapshot is the size of the last snapshot in bytes. The file is large enough when it is about as
// large as the snapshot. As a result, only about one byte is written to snapshots for each byte
// written to the log, regardless of the store's size.
func (w *wal) full(snapshot int64) bool { return w.end >= max(w.switchSize, min(snapshot, walMax/2)) }

// switchFile switches to the beginning of the other file. The snapshot must already include that
// file's records.
func (w *wal) switchFile() error {
	w.now, w.end = 1-w.now, 0
	if w.sizes[w.now] <= w.reserved() {
		return nil
	}
	w.sizes[w.now] = w.reserved()
	return w.files[w.now].Truncate(w.reserved())
}
