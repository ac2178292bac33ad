package kv

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/bourse-dev/bourse"
)

// unsaltedHeader begins each record: its body's length (uint32), the CRC-32C
// (uint32) of all that follows it, and its number (uint64), which grows by
// one. All are big endian. A record of a length of zero is none.
const unsaltedHeader = 16

// afterUnsalted returns the records with numbers past one of a log that was
// written before version 7 of the schema, in order. CodeInternal: some of them
// are missing.
func (w *wal) afterUnsalted(seq uint64) ([]walRecord, error) {
	var all []walRecord
	for i, f := range w.files {
		records, err := readUnsalted(io.NewSectionReader(f, 0, w.sizes[i]))
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "read the write-ahead log: %w", err)
		}
		all = append(all, records...)
	}
	slices.SortFunc(all, func(a, b walRecord) int { return cmp.Compare(a.seq, b.seq) })
	all = slices.DeleteFunc(all, func(r walRecord) bool { return r.seq <= seq })
	for i, r := range all {
		if r.seq != seq+1+uint64(i) {
			return nil, bourse.Errorf(bourse.CodeInternal, "the write-ahead log is damaged: record %d follows %d", r.seq, seq+uint64(i))
		}
	}
	return all, nil
}

// readUnsalted returns the records at the beginning of a file, up to the first
// that is not whole or does not continue the one before: it was being written
// when the power went, or is left from an earlier turn. Nothing behind it is
// read.
func readUnsalted(file *io.SectionReader) ([]walRecord, error) {
	var out []walRecord
	in := bufio.NewReader(file)
	for left := file.Size(); left > unsaltedHeader; {
		var head [unsaltedHeader]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return out, whole(err)
		}
		n := int64(binary.BigEndian.Uint32(head[:]))
		if left -= unsaltedHeader + n; n == 0 || left < 0 {
			break
		}
		r := walRecord{seq: binary.BigEndian.Uint64(head[8:]), body: make([]byte, n)}
		if _, err := io.ReadFull(in, r.body); err != nil {
			return out, whole(err)
		}
		sum := crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, r.body)
		if sum != binary.BigEndian.Uint32(head[4:]) || len(out) > 0 && r.seq != out[len(out)-1].seq+1 {
			break
		}
		out = append(out, r)
	}
	return out, nil
}

// whole returns an error of reading, but for the file's end.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
