package schema

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// BadSuffix is what the name of a replaced file ends with. One is kept, for
// people who look into what happened.
const BadSuffix = ".bad"

// File is an open file with the writer's connection.
type File struct {
	Conn *sqlite.Conn
	Path string      // "" in memory
	Info os.FileInfo // distinguishes this file from another one of its name; nil in memory
}

// Unusable is a file that has to be replaced.
type Unusable struct{ Cause error }

// Error returns the cause.
func (e *Unusable) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *Unusable) Unwrap() error { return e.Cause }

// Open makes the file when there is none, for this user alone.
func Open(path string) (*File, error) {
	name := path
	if path == "" {
		name = ":memory:"
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// What a file that was deleted has left would be taken for the new one's.
		if err := errors.Join(remove(path+"-wal"), remove(path+"-shm")); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "clear away an old log: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "make the file: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "make the file: %w", err)
		}
	}
	c, err := sqlite.OpenConn(name, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busyTimeout)
	return &File{Conn: c, Path: path}, nil
}

// busyTimeout is how long a connection waits for another one: in a log file
// they hardly ever meet.
const busyTimeout = 5 * time.Second

// Pragmas of the writer. With the log file and without a sync for each commit,
// a crash of this process loses nothing and one of the host the last commits,
// which the epoch that follows it makes good.
var Pragmas = []string{
	"PRAGMA journal_mode = wal",
	"PRAGMA synchronous = normal",
	"PRAGMA foreign_keys = off",
	"PRAGMA temp_store = memory",
	"PRAGMA cache_size = -16384", // KiB
	"PRAGMA journal_size_limit = 67108864",
}

// Close closes the connection. Closing the last one of a file moves its log
// into it.
func (f *File) Close() error { return f.Conn.Close() }

// MoveAside renames a file that a new one replaces.
func MoveAside(path string) error {
	if path == "" {
		return errors.New("a new view in memory is of no use")
	}
	err := os.Rename(path, path+BadSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	wal := os.Rename(path+"-wal", path+BadSuffix+"-wal")
	if errors.Is(wal, fs.ErrNotExist) {
		wal = remove(path + BadSuffix + "-wal") // an older one's
	}
	return errors.Join(err, wal, remove(path+"-shm"), remove(path+BadSuffix+"-shm"))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
