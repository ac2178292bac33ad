package kv

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bourse-dev/bourse"
)

// FileName is the name of the file in its directory.
const FileName = "worker.db"

const (
	lockTimeout = time.Second // how long another process may take to release the file
	// The file is mapped once, at a size that it hardly ever outgrows: growing
	// the map makes writers wait for readers. It costs address space only.
	initialMap = 1 << 30
)

// File is a bbolt file in which each value has a checksum: an engine by itself,
// which syncs each transaction. It is safe for concurrent use.
type File struct {
	db     *bbolt.DB
	schema *Schema
}

// OpenFile opens the file at a path, and makes it when there is none. Its errors are
// those of Open. There must be no log beside it.
func OpenFile(path string, schema *Schema) (*File, error) {
	return openFile(path, schema)
}

// openFile opens and checks a file, and creates its buckets if it is new. The file is read as a whole before bbolt sees it,
// which would believe what it maps. What is wrong beyond that may make bbolt panic,
// or touch pages that are not there: both become an error.
func openFile(path string, schema *Schema) (opened *File, err error) {
	f, err := lockFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := checkFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %v", path, v)
			opened = nil // its lock is released when the process ends: closing would touch the pages again
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMap, NoStatistics: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, bourse.Errorf(bourse.CodeInternal, "store %s is damaged: %w", path, err)
	case err != nil:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store %s: %w", path, err)
	}
	opened = &File{db: db, schema: schema}
	if err := opened.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), db.Close())
	}
	return opened, nil
}

// checkFile reports an error unless every page and value of the file is what was
// written.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	if e := examine(f, info.Size(), nil); len(e.damage) > 0 {
		return damaged(e.damage)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }

// View executes fn on the present state.
func (f *File) View(fn func(Tx) error) error {
	var spoiled error
	t, err := f.begin(func(err error) { spoiled = err })
	if err != nil {
		return err
	}
	defer t.end()
	if err := fn(t); spoiled == nil {
		return err
	}
	return spoiled // what fn has read may be nothing in place of something
}

// Update executes fn and makes what it has written durable, unless it fails.
func (f *File) Update(fn func(Tx) error) error {
	return f.db.Update(func(tx *bbolt.Tx) error { return f.schema.in(tx, fn) })
}

// in executes fn in a transaction of the file that writes.
func (s *Schema) in(tx *bbolt.Tx, fn func(Tx) error) error {
	var spoiled error
	t := &fileTx{tx: tx, schema: s, spoiled: func(err error) { spoiled = err }}
	if err := fn(t); err != nil {
		return err
	}
	if spoiled != nil {
		return spoiled
	}
	return t.settle()
}
