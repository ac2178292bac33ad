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

// Report describes the contents of a store's files and any damage to them.
type Report struct {
	Version int            // version of the schema
	Keys    int64          // intact keys in the snapshot
	Records int            // number of intact records in the log that the snapshot does not include
	Intact  map[string]int // number of intact keys by bucket, including those in the log
	Damage  []string       // a description of each damaged place
	Lost    []string       // set by Recover: the number of lost keys in each bucket that has lost any
	Saved   []string       // set by Recover: the new names of the damaged files
}

// inspection contains the intact contents of a store's files.
type inspection struct {
	Report
	contents
	whole map[string]uint64 // number of intact keys in the snapshot, by bucket
	lock  *os.File
}

// Check reads and verifies the whole store in a directory without changing it. It returns
// CodeAlreadyExists if a daemon has the store open, and CodeNotFound if the directory contains
// no store.
func Check(dir string, schema *Schema) (Report, error) {
	l, err := inspect(dir, schema)
	if err != nil {
		return Report{}, err
	}
	return l.Report, l.lock.Close()
}

// inspect locks a store's directory and reads all intact records.
func inspect(dir string, schema *Schema) (*inspection, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "store %s does not exist", path)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &inspection{lock: lock}
	if err := l.read(dir, path, schema); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return l, nil
}

func (l *inspection) read(dir, path string, schema *Schema) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	l.contents = readSnapshot(b, schema)
	l.whole = counts(l.state)
	if !l.unreadable {
		if err := l.readLog(dir, schema); err != nil {
			return err
		}
	}
	for _, d := range l.damage {
		l.Damage = append(l.Damage, d.String())
	}
	l.Version, l.Keys, l.Intact = l.version, l.keys, map[string]int{}
	for bucket, n := range counts(l.state) {
		l.Intact[bucket] = int(n)
	}
	return nil
}

func counts(s *state) map[string]uint64 {
	n := map[string]uint64{}
	s.Scan(func(c change) bool { n[c.bucket]++; return true })
	return n
}

// readLog reads the log, and applies the records that are newer than the snapshot.
func (l *inspection) readLog(dir string, schema *Schema) error {
	w := &wal{salt: l.salt}
	defer w.close() // the log was only read, so an error does not matter
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
		if err := readOps(r.body, schema.Buckets, func(c change) { c.clone().applyTo(l.state) }); err != nil {
			return err
		}
	}
	l.Records = len(found.records)
	l.damage = append(l.damage, found.damage...)
	return nil
}

// Recover replaces a damaged store with a new one that contains all intact records, and retains the damaged files under
// other names. It omits the records of the derived buckets, and calls derive to rebuild them. It returns Check's
// errors, and CodeFailedPrecondition if nothing is damaged or both heads of the snapshot are damaged.
func Recover(dir string, schema *Schema, now time.Time, derive func(Tx) error) (Report, error) {
	return recoverStore(dir, schema, now, derive, func() error { return nil })
}

// recoverStore implements Recover. It calls step after each change to the directory, and fails if step returns an
// error. Tests use step to simulate crashes.
func recoverStore(dir string, schema *Schema, now time.Time, derive func(Tx) error, step func() error) (Report, error) {
	l, err := inspect(dir, schema)
	if err != nil {
		return Report{}, err
	}
	defer l.lock.Close()
	switch {
	case len(l.Damage) == 0:
		return l.Report, bourse.Errorf(bourse.CodeFailedPrecondition, "the store is not damaged; nothing was changed")
	case l.unreadable:
		return l.Report, bourse.Errorf(bourse.CodeFailedPrecondition, "%s cannot be read, because both of its headers are damaged: restore a copy of the store's files", FileName)
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

// findLost records how many keys of each bucket are missing from the snapshot because of damage.
func (l *inspection) findLost(schema *Schema) {
	if l.counts == nil {
		l.Lost = append(l.Lost, "the original number of records is unknown")
		return
	}
	for _, bucket := range schema.Buckets {
		if had, have := l.counts[bucket], l.whole[bucket]; had > have && !slices.Contains(schema.Derived, bucket) {
			l.Lost = append(l.Lost, fmt.Sprintf("%s: %d of %d", bucket, had-have, had))
		}
	}
}

// replace renames the new store over the damaged one, and retains the damaged files under other names. It copies the
// log files instead of linking them: if a crash prevents the removal of the originals, the new store will overwrite the
// originals, and links to them would have the same contents. After any crash, the directory contains either the damaged
// store or the new one. The new store ignores the old log, because the two have different salts.
func (l *inspection) replace(dir string, now time.Time, step func() error) error {
	suffix := ".damaged-" + now.UTC().Format("20060102T150405Z")
	for _, name := range append([]string{FileName}, walNames[:]...) {
		keep := copyFile
		if name == FileName { // link the snapshot, because its file is replaced and never overwritten
			keep = os.Link
		}
		err := keep(filepath.Join(dir, name), filepath.Join(dir, name+suffix))
		if errors.Is(err, fs.ErrNotExist) && name != FileName {
			continue
		}
		if err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "keep the damaged files: %w", err)
		}
		l.Saved = append(l.Saved, name+suffix)
		if err := step(); err != nil {
			return err
		}
	}
	if _, err := writeSnapshot(dir, head{l.version, newSalt(), 0}, l.state, step); err != nil {
		return unavailable(err)
	}
	for _, name := range walNames {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bourse.Errorf(bourse.CodeUnavailable, "recover: %w", err)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// copyFile copies a file. The target must not exist yet.
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
