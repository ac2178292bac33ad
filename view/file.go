package view

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// tooOld is how long a file may be out of use: after that, deletions that it
// missed may have been forgotten by all others.
const tooOld = retention - 24*time.Hour

// badSuffix is what the name of a replaced file ends with. One is kept, for
// those who look into what happened.
const badSuffix = ".bad"

// file is an open file with the writer's connection.
type file struct {
	conn *sqlite.Conn
	path string      // "" in memory
	info os.FileInfo // tells this file from another one of its name; nil in memory
}

// unusable is a file that has to be replaced.
type unusable struct{ cause error }

func (e *unusable) Error() string { return e.cause.Error() }
func (e *unusable) Unwrap() error { return e.cause }

// openFile opens the file of the configuration, or makes it; one that is of no
// use is moved aside first. A new one begins an epoch after the one given.
func (v *View) openFile(after uint64) error {
	f, st, err := v.tryFile(after)
	if bad, ok := errors.AsType[*unusable](err); ok {
		v.config.Log.Warn("the view's file is replaced", slog.String("path", v.config.Path), slog.Any("err", bad.cause))
		if err := moveAside(v.config.Path); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "move the view's file aside: %w", err)
		}
		f, st, err = v.tryFile(after)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "%w", err)
	}
	v.writer.file = f
	v.mu.Lock()
	v.state = st
	v.mu.Unlock()
	v.pool.reset(f)
	return nil
}

func (v *View) tryFile(after uint64) (*file, *state, error) {
	f, err := openConn(v.config.Path)
	if err != nil {
		return nil, nil, err
	}
	st, err := v.prepare(f, after)
	if err == nil && f.path != "" {
		f.info, err = os.Stat(f.path)
	}
	if err != nil {
		_ = f.close() // the error is told already
		switch fateOf(err) {
		case fateDamaged, fateBadRow:
			err = &unusable{err}
		case fateUnavailable, fateKilled:
		}
		return nil, nil, err
	}
	return f, st, nil
}

// openConn makes the file when there is none, for this user alone.
func openConn(path string) (*file, error) {
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
	return &file{conn: c, path: path}, nil
}

// busyTimeout is how long a connection waits for another one: in a log file
// they hardly ever meet.
const busyTimeout = 5 * time.Second

// pragmas of the writer. With the log file and without a sync for each commit,
// a crash of this process loses nothing and one of the host the last commits,
// which the epoch that follows it makes good.
var pragmas = []string{
	"PRAGMA journal_mode = wal",
	"PRAGMA synchronous = normal",
	"PRAGMA foreign_keys = off",
	"PRAGMA temp_store = memory",
	"PRAGMA cache_size = -16384", // KiB
	"PRAGMA journal_size_limit = 67108864",
}

// prepare checks the file and reads the state.
func (v *View) prepare(f *file, after uint64) (*state, error) {
	for _, p := range pragmas {
		if err := run(f.conn, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	from, err := migrate(f.conn, v.writer.history)
	if err != nil {
		return nil, err
	}
	all, err := readTables(f.conn)
	if err != nil {
		return nil, err
	}
	if v.tables == nil {
		v.tables = all
	}
	m, err := v.readMeta(f.conn, after)
	if err != nil {
		return nil, err
	}
	st, err := readState(f.conn, m.self, m.clock)
	if err != nil {
		return nil, err
	}
	st.pen = v.notary.newPen()
	return st, v.settle(f.conn, st, m, from)
}

// close closes the connection. Closing the last one of a file moves its log
// into it.
func (f *file) close() error { return f.conn.Close() }

// moveAside makes room for a new file.
func moveAside(path string) error {
	if path == "" {
		return errors.New("a new view in memory is of no use")
	}
	err := os.Rename(path, path+badSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	wal := os.Rename(path+"-wal", path+badSuffix+"-wal")
	if errors.Is(wal, fs.ErrNotExist) {
		wal = remove(path + badSuffix + "-wal") // an older one's
	}
	return errors.Join(err, wal, remove(path+"-shm"), remove(path+badSuffix+"-shm"))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
