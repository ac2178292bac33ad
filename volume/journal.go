package volume

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
)

// A journal records which chunks of a half-filled image are durable: records of
// the chunk's number (8 bytes, little endian), its sha256 (32), and a CRC-32C
// of both (4). A chunk's latest record counts; 32 zero bytes mean that it is no longer
// durable. What is behind a torn record was never acknowledged.

const journalRecord = 8 + sha256.Size + 4

// noDigest is the digest of a chunk that is about to be overwritten.
var noDigest = digestPrefix + hex.EncodeToString(make([]byte, sha256.Size))

func appendRecord(b []byte, c Chunk) ([]byte, error) {
	sum, err := hex.DecodeString(c.Digest[len(digestPrefix):])
	if err != nil || len(sum) != sha256.Size {
		return nil, errors.New("digest of a chunk") // it was validated
	}
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.N))
	b = append(b, sum...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], crc32.MakeTable(crc32.Castagnoli))), nil
}

// parseJournal returns the digest of each chunk in the journal, and the bytes of
// it that are whole.
func parseJournal(b []byte) (done map[int]string, whole int) {
	done = map[int]string{}
	for ; whole+journalRecord <= len(b); whole += journalRecord {
		r := b[whole : whole+journalRecord]
		n := binary.LittleEndian.Uint64(r)
		sum := crc32.Checksum(r[:journalRecord-4], crc32.MakeTable(crc32.Castagnoli))
		if sum != binary.LittleEndian.Uint32(r[journalRecord-4:]) || n > 1<<40 {
			break
		}
		note(done, Chunk{N: int(n), Digest: digestPrefix + hex.EncodeToString(r[8:8+sha256.Size])})
	}
	return done, whole
}

func note(done map[int]string, c Chunk) {
	if c.Digest == noDigest {
		delete(done, c.N)
		return
	}
	done[c.N] = c.Digest
}

// journal is an open one.
type journal struct {
	file *os.File
	done map[int]string // durable chunks, with their digests
}

// openJournal reads what is there and cuts off a torn end.
func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	done, whole := parseJournal(b)
	err = f.Truncate(int64(whole))
	if err == nil {
		_, err = f.Seek(int64(whole), io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &journal{file: f, done: done}, nil
}

// add makes the chunks of the image durable, then records that.
func (j *journal) add(image *os.File, batch []Chunk) error {
	if len(batch) == 0 {
		return nil
	}
	if err := image.Sync(); err != nil {
		return err
	}
	return j.write(batch)
}

// forget records that chunks are no longer durable, before they change.
func (j *journal) forget(ns []int) error {
	batch := make([]Chunk, 0, len(ns))
	for _, n := range ns {
		batch = append(batch, Chunk{N: n, Digest: noDigest})
	}
	return j.write(batch)
}

func (j *journal) write(batch []Chunk) error {
	if len(batch) == 0 {
		return nil
	}
	var b []byte
	var err error
	for _, c := range batch {
		if b, err = appendRecord(b, c); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(b); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	for _, c := range batch {
		note(j.done, c)
	}
	return nil
}
