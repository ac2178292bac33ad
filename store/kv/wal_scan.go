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

// Damage describes a damaged place in a store's files.
type Damage struct {
	File   string // name in the store's directory
	Offset int64  // offset in bytes; -1 if unknown
	What   string
}

func (d Damage) String() string {
	if d.Offset < 0 {
		return d.File + ": " + d.What
	}
	return fmt.Sprintf("%s at byte %d: %s", d.File, d.Offset, d.What)
}

// walContents contains the records that were found in the log.
type walContents struct {
	records []walRecord // intact records that are newer than the snapshot, sorted by number
	damage  []Damage    // acknowledged records that are damaged or missing
}

// maxWALRecords is the maximum number of log records that are newer than the snapshot.
const maxWALRecords = 1 << 32

// walScan is the state of a scan of the log.
type walScan struct {
	intact  map[uint64]walRecord
	damaged map[uint64]walPlace // records with an intact header and a damaged body
	last    uint64              // number of the last record that is known to have been synced
}

// scan finds all intact records of the log, at any position. seq is the number of the last record
// that the snapshot includes. An incomplete last record counts as damage only if its mark or a
// later record proves that it was synced. Otherwise, scan assumes that the record was being written
// when the power failed.
func (w *wal) scan(seq uint64) (walContents, error) {
	found := walScan{intact: map[uint64]walRecord{}, damaged: map[uint64]walPlace{}, last: seq}
	for i, f := range w.files {
		if f == nil { // the file does not exist
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
	for _, r := range found.intact {
		out.records = append(out.records, r)
	}
	slices.SortFunc(out.records, func(a, b walRecord) int { return cmp.Compare(a.seq, b.seq) })
	out.damage = found.missing(seq)
	return out, nil
}

// read looks for headers at every byte of a file, except inside intact records.
func (f *walScan) read(key salt, b []byte, file int, seq uint64) {
	for at := 0; at+walHeader <= len(b); {
		h, ok := key.head(b[at:], seq+maxWALRecords)
		if !ok {
			at = max(at+1, at+leadingZeros(b[at:])-walHeader+1)
			continue
		}
		place := walPlace{file: file, offset: int64(at), size: walHeader + h.length}
		at += walHeader
		switch {
		case h.length == 0:
			f.last = max(f.last, h.seq)
		case h.length > int64(len(b)-at) || crc32.Checksum(b[at:at+int(h.length)], castagnoli) != h.sum:
			f.damaged[h.seq] = place
			f.last = max(f.last, h.seq-1) // a record is written only after the previous one was synced
		default:
			if f.last = max(f.last, h.seq); h.seq > seq {
				f.intact[h.seq] = walRecord{seq: h.seq, body: b[at : at+int(h.length) : at+int(h.length)], at: place}
			}
			at += int(h.length)
		}
	}
}

// zeroBlock is a block of zeros, like a block of the log that was never written.
var zeroBlock [4 << 10]byte

// leadingZeros returns the number of zeros at the beginning of b, counting only whole blocks. Most of a
// log consists of zeros, which contain no headers.
func leadingZeros(b []byte) int {
	n := 0
	for len(b) >= n+len(zeroBlock) && bytes.Equal(b[n:n+len(zeroBlock)], zeroBlock[:]) {
		n += len(zeroBlock)
	}
	return n
}

// missing describes the records after seq that were synced but are not intact. It returns one
// Damage for each run of consecutive missing records.
func (f *walScan) missing(seq uint64) []Damage {
	var out []Damage
	numbers := slices.Sorted(maps.Keys(f.intact))
	before := seq
	for _, n := range append(numbers, f.last+1) {
		if n > before+1 {
			out = append(out, f.gap(before, n))
		}
		before = n
	}
	return out
}

// gap describes the missing records between two record numbers: before is the last record before
// the gap, and next is the first one after it.
func (f *walScan) gap(before, next uint64) Damage {
	d := Damage{File: walNames[0], Offset: -1}
	switch first := next - before - 1; first {
	case 1:
		d.What = fmt.Sprintf("acknowledged record %d is damaged", before+1)
	default:
		d.What = fmt.Sprintf("acknowledged records %d to %d are damaged", before+1, next-1)
	}
	place, ok := f.damaged[before+1]
	if r, whole := f.intact[before]; !ok && whole {
		place, ok = walPlace{file: r.at.file, offset: r.at.offset + r.at.size}, true
	}
	if r, whole := f.intact[next]; !ok && whole {
		place, ok = walPlace{file: r.at.file}, true
	}
	if ok {
		d.File, d.Offset = walNames[place.file], place.offset
	}
	return d
}

// resume sets the position of the next record. If the log's other file contains no records that are still needed, the
// next record is written to the beginning of that file. This leaves as much space as possible for the records that are
// written until the next checkpoint completes, which may take long if the disk is full. If the other file is still
// needed, the next record follows the last one.
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
	return w.switchFile()
}

// damaged returns Open's error for a damaged store. Such a store must not be used, because the
// acknowledged records that it has lost may describe running machines.
func damaged(all []Damage) error {
	texts := make([]string, 0, 3)
	for _, d := range all[:min(len(all), cap(texts))] {
		texts = append(texts, d.String())
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return bourse.Errorf(bourse.CodeInternal, "the store is damaged and was not changed: %s; machines keep running; run 'bourse worker store check' for details and 'bourse worker store recover' to recover the intact records, or restore a copy of the store's files", strings.Join(texts, "; "))
}
