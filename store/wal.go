package store

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/bourse-dev/bourse"
)

// wal is the write-ahead log: two files that take turns. A commit is one record
// at the end of the present one, durable after one sync that has nothing but
// its own bytes to write: the files' places on the disk are known before.
// While a checkpoint moves what one file records into the store's file, the
// other one takes what comes; then the first begins again, over its old
// records. Its methods are called by one goroutine.
type wal struct {
	files [2]*os.File
	sizes [2]int64 // bytes of each that have a place on the disk
	most  int64    // how much of each is used before the other takes over, and has a place from the beginning
	now   int      // which of them takes records
	end   int64    // of the last record in it
	seq   uint64   // of the last record
	media media
}

const (
	// walSize is how much of a file is used before the other takes over, and
	// how much of each has a place on the disk from the beginning. A file that
	// must grow grows by as much.
	walSize = 4 << 20
	// walMost bounds a file that must take more, because the checkpoint of the
	// other one does not end.
	walMost = 256 << 20
)

// walNames are the names of the files in the store's directory.
var walNames = [2]string{"worker.wal.0", "worker.wal.1"}

// walHeader begins each record: its body's length (uint32), the CRC-32C
// (uint32) of all that follows it, and its number (uint64), which grows by
// one. All are big endian. A record of a length of zero is none.
const walHeader = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openWAL opens the files, and makes those that are missing. most is walSize
// when it is 0.
func openWAL(dir string, most int64) (*wal, error) {
	w := &wal{most: cmp.Or(most, walSize), media: realDisk()}
	for i, name := range walNames {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			w.files[i] = f
			w.sizes[i], err = reserve(f, w.most)
		}
		if err != nil {
			return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "open the write-ahead log: %w", err), w.close())
		}
	}
	return w, nil
}

func (w *wal) close() error {
	var errs []error
	for _, f := range w.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// append writes a record and waits for the disk. record has room for the header
// at its beginning. After errNotSynced the log must not be used any more; after
// any other error nothing was written.
func (w *wal) append(record []byte) error {
	end := w.end + int64(len(record))
	if end > walMost {
		return fmt.Errorf("the write-ahead log has %d MiB", w.end>>20)
	}
	f := w.files[w.now]
	if err := w.makeRoom(end); err != nil {
		return err
	}
	body := record[walHeader:]
	binary.BigEndian.PutUint32(record, uint32(len(body)))
	binary.BigEndian.PutUint64(record[8:], w.seq+1)
	binary.BigEndian.PutUint32(record[4:], crc32.Checksum(record[8:], castagnoli))
	switch n, err := w.media.writeAt(f, record, w.end); {
	case err != nil && n == 0 && full(err):
		return err
	case err != nil: // some of it may be there, or all but the answer
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	if err := w.media.sync(f); err != nil {
		return fmt.Errorf("%w: %w", errNotSynced, err)
	}
	w.end, w.seq = end, w.seq+1
	return nil
}

// makeRoom gives the present file places on the disk up to end: for some
// records more, or for this one alone when the disk has no more.
func (w *wal) makeRoom(end int64) error {
	have := w.sizes[w.now]
	if end <= have {
		return nil
	}
	size := (end + w.most - 1) / w.most * w.most
	err := allocate(w.files[w.now], have, size-have)
	if err != nil && size > end {
		size, err = end, allocate(w.files[w.now], have, end-have)
	}
	if err == nil {
		w.sizes[w.now] = size
	}
	return err
}

// full tells whether it is time for the other file.
func (w *wal) full() bool { return w.end >= w.most }

// turn has the other file take what comes, from its beginning: what it holds
// must be in the store's file.
func (w *wal) turn() error {
	w.now, w.end = 1-w.now, 0
	if w.sizes[w.now] <= w.most {
		return nil
	}
	w.sizes[w.now] = w.most
	return w.files[w.now].Truncate(w.most)
}

// walRecord is what one commit wrote.
type walRecord struct {
	seq  uint64
	body []byte
}

// after gives the records with numbers past one, in order, and goes on behind
// them: the next record has the number after the last one's, and is written
// over records that must be in the store's file by then. CodeInternal: some of
// them are missing.
func (w *wal) after(seq uint64) ([]walRecord, error) {
	var all []walRecord
	for i, f := range w.files {
		records, err := readRecords(io.NewSectionReader(f, 0, w.sizes[i]))
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
	w.seq = seq + uint64(len(all))
	return all, nil
}

// readRecords gives the records at the beginning of a file, up to the first
// that is not whole or does not continue the one before: it was being written
// when the power went, or is left from an earlier turn. Nothing behind it is
// read.
func readRecords(file *io.SectionReader) ([]walRecord, error) {
	var out []walRecord
	in := bufio.NewReader(file)
	for left := file.Size(); left > walHeader; {
		var head [walHeader]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return out, whole(err)
		}
		n := int64(binary.BigEndian.Uint32(head[:]))
		if left -= walHeader + n; n == 0 || left < 0 {
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

// whole gives an error of reading, but for the file's end.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// The operations in a record's body: a byte, the bucket and the key, each after
// its length as a uvarint, and the value of a put likewise.
const (
	opPut    = 1
	opDelete = 2
)

// appendOp writes an operation onto a record.
func appendOp(b []byte, c *change) []byte {
	op := byte(opPut)
	if c.value == nil {
		op = opDelete
	}
	b = append(b, op)
	b = append(binary.AppendUvarint(b, uint64(len(c.bucket))), c.bucket...)
	b = append(binary.AppendUvarint(b, uint64(len(c.key))), c.key...)
	if op == opPut {
		b = append(binary.AppendUvarint(b, uint64(len(c.value))), c.value...)
	}
	return b
}

// readOps puts the operations of a record's body into a tree, which shares
// its bytes.
func readOps(body []byte, into *changes) error {
	part := func() []byte {
		n, k := binary.Uvarint(body)
		if k <= 0 || n > uint64(len(body)-k) {
			body = nil
			return nil
		}
		p := body[k : k+int(n) : k+int(n)]
		body = body[k+int(n):]
		return p
	}
	for len(body) > 0 {
		op := body[0]
		body = body[1:]
		c := change{bucket: string(part()), key: part()}
		if op == opPut {
			c.value = part()
		}
		if op != opPut && op != opDelete || !slices.Contains(allBuckets, c.bucket) || len(c.key) == 0 || op == opPut && c.value == nil {
			return bourse.Errorf(bourse.CodeInternal, "the write-ahead log is damaged: %s is no change", bourse.Quoted(c.bucket))
		}
		into.Set(c)
	}
	return nil
}
