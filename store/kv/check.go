package kv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Report is what a look at a store's files has found.
type Report struct {
	Version int            // of the schema
	Keys    int64          // that are whole, in the snapshot
	Records int            // that are whole, in the log and not in the snapshot
	Have    map[string]int // how many whole keys each bucket has, in both
	Damage  []string       // what is not as it was written
	Lost    []string       // by Salvage: how much of each bucket
	Kept    []string       // by Salvage: the names under which the damaged files are kept
}

// looked is the contents of a store's files, as far as they are whole.
type looked struct {
	Report
	contents
	whole map[string]uint64 // how many whole keys each bucket of the snapshot has
	lock  *os.File
}

// Check looks at all of the store in a directory, and changes nothing.
// CodeAlreadyExists: a daemon has it. CodeNotFound: there is none.
func Check(dir string, schema *Schema) (Report, error) {
	l, err := look(dir, schema)
	if err != nil {
		return Report{}, err
	}
	return l.Report, l.lock.Close()
}

// look takes the lock of a store and reads all that is whole.
func look(dir string, schema *Schema) (*looked, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "there is no store %s", path)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &looked{lock: lock}
	if err := l.read(dir, path, schema); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return l, nil
}

func (l *looked) read(dir, path string, schema *Schema) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	l.contents = readSnapshot(b, schema)
	l.whole = counts(l.state)
	if !l.nothing {
		if err := l.readLog(dir, schema); err != nil {
			return err
		}
	}
	for _, d := range l.damage {
		l.Damage = append(l.Damage, d.String())
	}
	l.Version, l.Keys, l.Have = l.version, l.keys, map[string]int{}
	for bucket, n := range counts(l.state) {
		l.Have[bucket] = int(n)
	}
	return nil
}

func counts(s *state) map[string]uint64 {
	n := map[string]uint64{}
	s.Scan(func(c change) bool { n[c.bucket]++; return true })
	return n
}

// readLog adds what the log has and the snapshot has not.
func (l *looked) readLog(dir string, schema *Schema) error {
	w := &wal{salt: l.salt}
	defer w.close() // it was only read
	for i, name := range walNames {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "open the write-ahead log: %w", err)
		}
		w.files[i] = f
		info, err := f.Stat()
		if err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "open the write-ahead log: %w", err)
		}
		w.sizes[i] = info.Size()
	}
	found, err := w.scan(l.seq)
	if err != nil {
		return err
	}
	for _, r := range found.records {
		if err := readOps(r.body, schema.Buckets, func(c change) { c.clone().makeIn(l.state) }); err != nil {
			return err
		}
	}
	l.Records = len(found.records)
	l.damage = append(l.damage, found.damage...)
	return nil
}

// Salvage makes a new store of what is whole in a damaged one, whose files it
// keeps under other names. derive computes again what follows from other keys: it
// is called in a transaction of a store that has nothing in the derived buckets.
// CodeFailedPrecondition: nothing is damaged, or nothing is whole.
func Salvage(dir string, schema *Schema, now time.Time, derive func(Tx) error) (Report, error) {
	return salvage(dir, schema, now, derive, func() error { return nil })
}

// salvage is Salvage; step, for tests, is called after each change of the
// directory, and ends it with its error as a crash would.
func salvage(dir string, schema *Schema, now time.Time, derive func(Tx) error, step func() error) (Report, error) {
	l, err := look(dir, schema)
	if err != nil {
		return Report{}, err
	}
	defer l.lock.Close()
	switch {
	case len(l.Damage) == 0:
		return l.Report, bourse.Errorf(bourse.CodeFailedPrecondition, "the store is whole: nothing was changed")
	case l.nothing:
		return l.Report, bourse.Errorf(bourse.CodeFailedPrecondition, "%s has neither a beginning nor an end that would say how to read it: restore a copy of its files", FileName)
	}
	l.findLost(schema)
	var derived []change
	l.state.Scan(func(c change) bool {
		if slices.Contains(schema.Derived, c.bucket) {
			derived = append(derived, c)
		}
		return true
	})
	for _, c := range derived {
		l.state.Delete(c)
	}
	if err := derive(&stateTx{state: l.state, writes: &writes{}}); err != nil {
		return l.Report, err
	}
	return l.Report, l.replace(dir, now, step)
}

// findLost says how much of the snapshot is not whole.
func (l *looked) findLost(schema *Schema) {
	if l.counts == nil {
		l.Lost = append(l.Lost, "it is not known how many records there were")
		return
	}
	for _, bucket := range schema.Buckets {
		if had, have := l.counts[bucket], l.whole[bucket]; had > have && !slices.Contains(schema.Derived, bucket) {
			l.Lost = append(l.Lost, fmt.Sprintf("%s: %d of %d", bucket, had-have, had))
		}
	}
}

// replace puts the new store in the place of the damaged one, whose files are kept
// under other names. The log is copied, since a crash before its removal leaves it to
// the new store, which writes over it. A crash leaves either the damaged store or the
// new one: that knows nothing of the old one's log, since it has another salt.
func (l *looked) replace(dir string, now time.Time, step func() error) error {
	suffix := ".damaged-" + now.UTC().Format("20060102T150405Z")
	for _, name := range append([]string{FileName}, walNames[:]...) {
		keep := copyFile
		if name == FileName { // which is replaced, never written
			keep = os.Link
		}
		err := keep(filepath.Join(dir, name), filepath.Join(dir, name+suffix))
		if errors.Is(err, fs.ErrNotExist) && name != FileName {
			continue
		}
		if err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "keep the damaged files: %w", err)
		}
		l.Kept = append(l.Kept, name+suffix)
		if err := step(); err != nil {
			return err
		}
	}
	if _, err := writeSnapshot(dir, head{l.version, newSalt(), 0}, l.state, step); err != nil {
		return unavailable(err)
	}
	for _, name := range walNames {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bourse.Errorf(bourse.CodeUnavailable, "salvage: %w", err)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// copyFile makes a copy of a file under a name that nothing has yet.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
