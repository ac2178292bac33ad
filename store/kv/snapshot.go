package kv

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// FileName is the name of the snapshot in a store's directory. It contains the whole state of the
// store as of one particular log record.
//
// A snapshot begins with a head. The head is followed by one record for each key and its value, in the log's format
// and numbered from 1. The last record contains the number of keys per bucket. The head is repeated at the end of the
// file, because nothing can be read without a head.
const FileName = "worker.db"

// magic is the text at the beginning of a head.
const magic = "bourse store\x00\x00\x00\x00"

// headSize is the size of a head in bytes: the magic, the schema's version (uint32), the log's salt, the number of
// the last log record that the snapshot includes (uint64), and the CRC-32C of all these fields (uint32). All are
// big endian.
const headSize = len(magic) + 4 + saltSize + 8 + 4

// head describes a snapshot.
type head struct {
	version int
	salt    salt   // salt of the log and of the snapshot's records
	seq     uint64 // number of the last log record included
}

func (h head) bytes() []byte {
	b := binary.BigEndian.AppendUint32([]byte(magic), uint32(h.version))
	b = binary.BigEndian.AppendUint64(append(b, h.salt[:]...), h.seq)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func headOf(b []byte) (h head, ok bool) {
	if len(b) != headSize || string(b[:len(magic)]) != magic || crc32.Checksum(b[:headSize-4], castagnoli) != binary.BigEndian.Uint32(b[headSize-4:]) {
		return h, false
	}
	rest := b[len(magic):]
	h.version = int(binary.BigEndian.Uint32(rest))
	h.salt = salt(rest[4 : 4+saltSize])
	h.seq = binary.BigEndian.Uint64(rest[4+saltSize:])
	return h, true
}

// writeSnapshot replaces the snapshot's file with one that contains state s, and returns the new
// file's size. If it returns without an error, the new file is durable. If the process crashes,
// either the old file or the new one exists. step, which only tests use, is called before the new
// file is written, before it is renamed, and after it has been renamed.
func writeSnapshot(dir string, h head, s *state, step func() error) (size int64, err error) {
	path := filepath.Join(dir, FileName)
	if err := step(); err != nil {
		return 0, err
	}
	if err := checkSpace(dir, path+".new", s); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	err = h.write(f, s)
	if err == nil {
		err = datasync(f)
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	if err := step(); err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return 0, err
	}
	if err := syncDir(dir); err != nil {
		return 0, err
	}
	return size, step()
}

// checkSpace removes the partial file of an interrupted snapshot, and returns ENOSPC if there is no space for a new
// snapshot. Without this check, an attempt to write a snapshot would use up the disk's last free space, which other
// programs may need.
func checkSpace(dir, path string, s *state) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	left, err := free(dir)
	if err != nil {
		return err
	}
	need := int64(4 << 10) // space for heads and key counts
	s.Scan(func(c change) bool {
		need += int64(walHeader + len(c.bucket) + len(c.key) + len(c.value) + 3*binary.MaxVarintLen32)
		return true
	})
	if left < need {
		return fmt.Errorf("snapshot needs %d KiB, but %d KiB are free: %w", need>>10, left>>10, syscall.ENOSPC)
	}
	return nil
}

// write writes the snapshot to f.
func (h head) write(f io.Writer, s *state) error {
	w := bufio.NewWriterSize(f, 1<<20)
	w.Write(h.bytes()) //nolint:errcheck // Flush returns the error
	n, counts := uint64(0), map[string]uint64{}
	record := make([]byte, walHeader)
	put := func(c *change) error {
		record = appendOp(record[:walHeader], c)
		n++
		h.salt.putHead(record, record[walHeader:], n)
		_, err := w.Write(record)
		return err
	}
	var err error
	s.Scan(func(c change) bool {
		counts[c.bucket]++
		if n%1000 == 0 {
			runtime.Gosched() // let waiting commits run first
		}
		err = put(&c)
		return err == nil
	})
	if err != nil {
		return err
	}
	counts[allBuckets] = n
	record = record[:walHeader]
	for _, bucket := range slices.Sorted(maps.Keys(counts)) {
		record = appendOp(record, &change{bucketCounts, []byte(bucket), uint64Bytes(counts[bucket])})
	}
	h.salt.putHead(record, record[walHeader:], n+1)
	w.Write(record)    //nolint:errcheck // as above
	w.Write(h.bytes()) //nolint:errcheck // as above
	return w.Flush()
}

// bucketCounts is the bucket name in a snapshot's last record. That record contains the number of
// keys in each bucket, and their total under the name allBuckets.
const (
	bucketCounts = "counts"
	allBuckets   = "all"
)

// contents contains the data that could be read from a snapshot, and a description of any damage.
type contents struct {
	head
	state      *state
	keys       int64             // number of intact keys
	counts     map[string]uint64 // original number of keys in each bucket; nil if unknown
	damage     []Damage
	unreadable bool // whether both heads are damaged, so that nothing can be read
}

func (c *contents) damaged(at int, what string) {
	c.damage = append(c.damage, Damage{FileName, int64(at), what})
}

// readSnapshot reads the intact records of a snapshot.
func readSnapshot(b []byte, schema *Schema) contents {
	c := contents{state: newState()}
	first, ok := headOf(b[:min(headSize, len(b))])
	last, okLast := headOf(b[max(0, len(b)-headSize):])
	switch {
	case !ok && !okLast:
		c.unreadable = true
		c.damaged(0, "not a worker's store")
		return c
	case !ok:
		c.damaged(0, "the head is damaged")
		c.head = last
	case !okLast || len(b) < 2*headSize:
		c.damaged(len(b), "the end is damaged, or missing")
		c.head = first
	case first != last:
		c.damaged(0, "head and end do not match")
		c.head = last
	default:
		c.head = first
	}
	c.readRecords(b, schema)
	return c
}

// readRecords reads the records between the two heads. It reports a sequence of invalid bytes only
// once, at its beginning.
func (c *contents) readRecords(b []byte, schema *Schema) {
	end := max(headSize, len(b)-headSize)
	seq, lost := uint64(0), false
	for at := headSize; at < end; {
		h, ok := c.salt.head(b[at:], maxRecords)
		body := at + walHeader
		switch {
		case !ok || h.length == 0 || h.length > int64(end-body):
			if !lost {
				c.damaged(at, "no valid record")
			}
			lost = true
			at++ // the next record may begin at any byte
			continue
		case crc32.Checksum(b[body:body+int(h.length)], castagnoli) != h.sum:
			c.damaged(at, damagedRecord(b[body:body+int(h.length)], schema))
		default:
			if h.seq != seq+1 && !lost {
				c.damaged(at, "the preceding record is missing")
			}
			if err := c.apply(b[body:body+int(h.length)], schema); err != nil {
				c.damaged(at, bourse.MessageOf(err))
			}
		}
		seq, lost = h.seq, false
		at = body + int(h.length)
	}
	if c.counts == nil {
		c.damaged(end, "the number of records is missing")
	}
}

// damagedRecord describes a record whose checksum is wrong. It names the bucket and key that the record
// appears to contain.
func damagedRecord(body []byte, schema *Schema) string {
	what := "a record"
	_ = readOps(body, schema.Buckets, func(c change) { what = fmt.Sprintf("the record of %q in %s", c.key, c.bucket) })
	return what + " is damaged"
}

// maxRecords is the maximum number of records in a snapshot.
const maxRecords = 1 << 40

// apply adds an intact record to the contents of the snapshot.
func (c *contents) apply(record []byte, schema *Schema) error {
	if c.counts != nil {
		return bourse.Errorf(bourse.CodeInternal, "unexpected record after the last one")
	}
	return readOps(record, append(slices.Clip(schema.Buckets), bucketCounts), func(op change) {
		if op.bucket == bucketCounts {
			if c.counts == nil {
				c.counts = map[string]uint64{}
			}
			c.counts[string(op.key)] = uint64Of(op.value)
			return
		}
		c.keys++
		op.clone().applyTo(c.state)
	})
}

// clone returns a deep copy of c.
func (c change) clone() change {
	c.key = slices.Clone(c.key)
	if c.value != nil {
		c.value = append([]byte{}, c.value...)
	}
	return c
}

func uint64Bytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func uint64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
