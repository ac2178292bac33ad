package schema

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// DamagedSuffix is appended to the name of a file that is being replaced, so that it can be
// inspected later. Only the latest such file is retained.
const DamagedSuffix = ".bad"

// File is an open view file, with the writer's connection to it.
type File struct {
	Conn *sqlite.Conn
	Path string      // "" if in memory
	Info os.FileInfo // distinguishes this file from others that have had the same name; nil if in memory
}

// UnusableError means that a file cannot be used and has to be replaced.
type UnusableError struct{ Cause error }

// Error returns the text of the cause.
func (e *UnusableError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnusableError) Unwrap() error { return e.Cause }

// Open opens the file at path, creating it if it does not exist. Only the current user has
// access to a new file.
func Open(path string) (*File, error) {
	name := path
	if path == "" {
		name = ":memory:"
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// If a deleted file has left its log behind, SQLite would apply the log to the new file.
		if err := errors.Join(remove(path+"-wal"), remove(path+"-shm")); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "remove an old log: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "create the file: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "create the file: %w", err)
		}
	}
	c, err := sqlite.OpenConn(name, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busyTimeout)
	return &File{Conn: c, Path: path}, nil
}

// busyTimeout is how long a connection waits for another connection's lock. Such conflicts are
// rare, because the file has a write-ahead log.
const busyTimeout = 5 * time.Second

// Pragmas configure the writer's connection. The file has a write-ahead log, which is not synced at
// each commit. Therefore, if the process crashes, nothing is lost, but if the host crashes, the
// last commits may be lost. After a host crash, the server begins a new epoch.
var Pragmas = []string{
	"PRAGMA journal_mode = wal",
	"PRAGMA synchronous = normal",
	"PRAGMA foreign_keys = off",
	"PRAGMA temp_store = memory",
	"PRAGMA cache_size = -16384", // 16 MiB; a negative value is in KiB
	"PRAGMA journal_size_limit = 67108864",
}

// Close closes the connection. When a file's last connection is closed, SQLite merges the
// write-ahead log into the file.
func (f *File) Close() error { return f.Conn.Close() }

// MoveAside renames the file at path, which is about to be replaced, together with its log.
func MoveAside(path string) error {
	if path == "" {
		return errors.New("an in-memory view cannot be replaced")
	}
	err := os.Rename(path, path+DamagedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	wal := os.Rename(path+"-wal", path+DamagedSuffix+"-wal")
	if errors.Is(wal, fs.ErrNotExist) {
		wal = remove(path + DamagedSuffix + "-wal") // the log of the file that was replaced last time
	}
	return errors.Join(err, wal, remove(path+"-shm"), remove(path+DamagedSuffix+"-shm"))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
