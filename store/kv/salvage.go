package kv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store/kv/pages"
)

// Report is what a look at a store's files has found.
type Report struct {
	Version int            // of the schema
	Keys    int64          // that are whole, in the file
	Records int            // that are whole, in the log and not in the file
	Have    map[string]int // how many whole keys each bucket has, in both
	Damage  []string       // what is not as it was written
	Lost    []string       // by Salvage: how much of each bucket
	Kept    []string       // by Salvage: the names under which the damaged files are kept
}

// looked is the contents of a store's files, as far as they are whole.
type looked struct {
	Report
	schema *Schema
	exam   *examination
	all    *changes
	lock   *os.File
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

// look takes the lock of a store's file and reads all that is whole.
func look(dir string, schema *Schema) (l *looked, err error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "there is no store %s", path)
	}
	l = &looked{schema: schema, all: newChanges()}
	if l.lock, err = lockFile(path, os.O_RDWR); err != nil {
		return nil, err
	}
	info, err := l.lock.Stat()
	if err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	keep := func(bucket string, key, value []byte) {
		l.all.Set(change{bucket, bytes.Clone(key), append([]byte{}, value...)})
	}
	l.exam = examine(l.lock, info.Size(), keep)
	damage := l.exam.damage
	if len(damage) > 0 && l.exam.sealed {
		l.findLost(keep)
	}
	found, err := l.readLog(dir)
	if err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	for _, d := range slices.Concat(damage, found) {
		l.Damage = append(l.Damage, d.String())
	}
	l.Version, l.Keys = l.exam.version, l.exam.keys
	l.Have = map[string]int{}
	l.all.Scan(func(c change) bool { l.Have[c.bucket]++; return true })
	return l, nil
}

// findLost adds what is in pages that a damaged one does not lead to any more.
func (l *looked) findLost(keep func(bucket string, key, value []byte)) {
	l.exam.pages.Lost(func(i pages.Item) {
		for _, bucket := range l.schema.Buckets {
			value, sum, ok := unseal(bucket, i.Key, i.Value)
			if _, had := l.all.Get(change{bucket: bucket, key: i.Key}); !ok || had {
				continue
			}
			keep(bucket, i.Key, value)
			t := l.exam.counted[bucket]
			t.add(sum)
			l.exam.counted[bucket] = t
			l.exam.keys++
			return
		}
	})
}

// readLog adds what the log has and the file has not.
func (l *looked) readLog(dir string) ([]Damage, error) {
	key, _ := l.all.Get(change{bucket: Meta, key: keySalt})
	at, ok := l.all.Get(change{bucket: Meta, key: keyMoved})
	moved := uint64Of(at.value)
	w := &wal{}
	if len(key.value) != len(w.salt) {
		if l.exam.sealed && len(l.exam.damage) > 0 { // else it is a new file
			return []Damage{{File: walNames[0], Offset: -1, What: "the log cannot be read, since its salt is lost"}}, nil
		}
		return nil, nil
	}
	w.salt = salt(key.value)
	defer w.close()
	for i, name := range walNames {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "open the write-ahead log: %w", err)
		}
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		w.files[i], w.sizes[i] = f, info.Size()
	}
	found, err := w.scan(moved)
	if err != nil {
		return nil, err
	}
	records := found.records
	if !ok && l.exam.sealed && len(l.exam.damage) > 0 { // what is behind a gap may be older than the file
		for i := len(records) - 1; i > 0; i-- {
			if records[i].seq != records[i-1].seq+1 {
				records = records[i:]
				break
			}
		}
	}
	for _, r := range records {
		err := l.schema.readOps(r.body, func(c change) {
			if c.value == nil {
				l.all.Delete(c)
			} else {
				l.all.Set(c)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	l.Records = len(records)
	return found.damage, nil
}

// Salvage makes a new store of what is whole in a damaged one, whose files it
// keeps under other names. derive computes again what follows from other keys: it
// is called in a transaction of a file that has nothing in the derived buckets.
// CodeFailedPrecondition: nothing is damaged, or the file has no checksums, so
// that it is not known what is whole.
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
	case !l.exam.sealed:
		return l.Report, bourse.Errorf(bourse.CodeFailedPrecondition, "the store has no checksums that would say what is whole: restore a copy of its files")
	}
	for _, bucket := range l.schema.Buckets {
		if had, have := l.exam.recorded[bucket].keys, l.exam.counted[bucket].keys; had > have && !slices.Contains(l.schema.Derived, bucket) {
			l.Lost = append(l.Lost, fmt.Sprintf("%s: %d of %d", bucket, had-have, had))
		}
	}
	path := filepath.Join(dir, FileName+".salvaged")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.Report, bourse.Errorf(bourse.CodeUnavailable, "salvage: %w", err)
	}
	file, err := openFile(path, schema)
	if err != nil {
		return l.Report, err
	}
	err = l.write(file, derive)
	if err == nil {
		err = l.replace(dir, path, now, step)
	}
	return l.Report, errors.Join(err, file.Close())
}

// write writes what is whole, and what follows from it, into a new file.
func (l *looked) write(file *File, derive func(Tx) error) error {
	for _, key := range [][]byte{keyVersion, keyMoved, keySalt} {
		l.all.Delete(change{bucket: Meta, key: key})
	}
	err := file.Update(func(t Tx) (err error) {
		l.all.Scan(func(c change) bool {
			if !slices.Contains(l.schema.Derived, c.bucket) {
				err = c.make(t)
			}
			return err == nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return file.Update(derive)
}

// replace puts the new file in the place of the damaged one. That has another name
// before, and the log a copy, since a crash before its removal leaves it to the new
// store, which writes over it. So a crash leaves either the damaged store or the
// new one; the new one's log begins empty, and would not know the old one's salt.
func (l *looked) replace(dir, path string, now time.Time, step func() error) error {
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
	if err := os.Rename(path, filepath.Join(dir, FileName)); err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "salvage: %w", err)
	}
	if err := step(); err != nil {
		return err
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
