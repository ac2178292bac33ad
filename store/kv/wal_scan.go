package kv

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Damage is a place of a store's files that does not hold what was written
// there.
type Damage struct {
	File   string // in the store's directory
	Offset int64  // in it; -1: not known
	What   string
}

func (d Damage) String() string {
	if d.Offset < 0 {
		return d.File + ": " + d.What
	}
	return fmt.Sprintf("%s at byte %d: %s", d.File, d.Offset, d.What)
}

// walContents is what was found in the log.
type walContents struct {
	records []walRecord // whole, with numbers past those moved, in their order
	damage  []Damage    // acknowledged records that are missing between or behind these
}

// walAhead is how many records a log can have at most beyond those moved.
const walAhead = 1 << 32

// walFound is what a scan has seen so far.
type walFound struct {
	whole  map[uint64]walRecord
	broken map[uint64]walPlace // the header is whole, the body is not
	last   uint64              // of the records that were synced, as others show
}

// scan reads the log: all that is whole, wherever it is. What comes last and is
// not whole was being written when the power went, unless something shows that
// it was synced: a record with a later number, or its mark. seq is the number of
// the last record that the snapshot includes.
func (w *wal) scan(seq uint64) (walContents, error) {
	found := walFound{whole: map[uint64]walRecord{}, broken: map[uint64]walPlace{}, last: seq}
	for i, f := range w.files {
		if f == nil { // of a log that is only looked at
			continue
		}
		b := make([]byte, w.sizes[i])
		if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return walContents{}, bourse.Errorf(bourse.CodeUnavailable, "read the write-ahead log: %w", err)
		} else if n < len(b) {
			b = b[:n]
		}
		found.read(w.salt, b, i, seq)
	}
	var out walContents
	for _, r := range found.whole {
		out.records = append(out.records, r)
	}
	slices.SortFunc(out.records, func(a, b walRecord) int { return cmp.Compare(a.seq, b.seq) })
	out.damage = found.missing(seq)
	return out, nil
}

// read looks for headers at every byte of a file, but for those that a whole
// record covers.
func (f *walFound) read(key salt, b []byte, file int, seq uint64) {
	for at := 0; at+walHeader <= len(b); {
		h, ok := key.head(b[at:], seq+walAhead)
		if !ok {
			at = max(at+1, at+zeros(b[at:])-walHeader+1)
			continue
		}
		place := walPlace{file: file, offset: int64(at), size: walHeader + h.length}
		at += walHeader
		switch {
		case h.length == 0:
			f.last = max(f.last, h.seq)
		case h.length > int64(len(b)-at) || crc32.Checksum(b[at:at+int(h.length)], castagnoli) != h.sum:
			f.broken[h.seq] = place
			f.last = max(f.last, h.seq-1) // it was begun when the one before was synced
		default:
			if f.last = max(f.last, h.seq); h.seq > seq {
				f.whole[h.seq] = walRecord{seq: h.seq, body: b[at : at+int(h.length) : at+int(h.length)], at: place}
			}
			at += int(h.length)
		}
	}
}

// nothing is a stretch of the log that was never written.
var nothing [4 << 10]byte

// zeros returns how many zeros a slice begins with, in whole stretches: most of
// a log is zeros, and no header is among them.
func zeros(b []byte) int {
	n := 0
	for len(b) >= n+len(nothing) && bytes.Equal(b[n:n+len(nothing)], nothing[:]) {
		n += len(nothing)
	}
	return n
}

// missing lists the records past seq that were synced and are not whole. A gap
// is one entry, at its beginning.
func (f *walFound) missing(seq uint64) []Damage {
	var out []Damage
	numbers := slices.Sorted(maps.Keys(f.whole))
	before := seq
	for _, n := range append(numbers, f.last+1) {
		if n > before+1 {
			out = append(out, f.gap(before, n))
		}
		before = n
	}
	return out
}

// gap describes what is missing between two records.
func (f *walFound) gap(before, next uint64) Damage {
	d := Damage{File: walNames[0], Offset: -1}
	switch first := next - before - 1; first {
	case 1:
		d.What = fmt.Sprintf("record %d, which was acknowledged, is damaged", before+1)
	default:
		d.What = fmt.Sprintf("records %d to %d, which were acknowledged, are damaged", before+1, next-1)
	}
	place, ok := f.broken[before+1]
	if r, whole := f.whole[before]; !ok && whole {
		place, ok = walPlace{file: r.at.file, offset: r.at.offset + r.at.size}, true
	}
	if r, whole := f.whole[next]; !ok && whole {
		place, ok = walPlace{file: r.at.file}, true
	}
	if ok {
		d.File, d.Offset = walNames[place.file], place.offset
	}
	return d
}

// resume has the next record written behind the last one, or into the other file
// when that has none that is still needed: a checkpoint of these begins now, and
// until it ends, which a full disk may put off, all of that file is for what comes.
func (w *wal) resume(seq uint64, records []walRecord) error {
	w.now, w.end, w.seq = 0, 0, seq
	n := len(records)
	if n == 0 {
		return nil
	}
	last := records[n-1]
	w.now, w.end, w.seq = last.at.file, last.at.offset+last.at.size, last.seq
	if slices.ContainsFunc(records, func(r walRecord) bool { return r.at.file != w.now }) {
		return nil
	}
	return w.turn()
}

// damaged is the error of a store that must not be opened as it is. Nothing is
// guessed: what is acknowledged and missing may be machines that run.
func damaged(all []Damage) error {
	texts := make([]string, 0, 3)
	for _, d := range all[:min(len(all), cap(texts))] {
		texts = append(texts, d.String())
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return bourse.Errorf(bourse.CodeInternal, "the store is damaged, and stays as it is: %s; machines go on; 'bourse worker store check' says more, 'bourse worker store salvage' keeps what is whole, or restore a copy of its files", strings.Join(texts, "; "))
}
