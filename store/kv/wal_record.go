package kv

import (
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
)

// walHeader is the size of the header of each log record: the length of the body (uint32), the
// body's CRC-32C (uint32), the record's number (uint64), which increases by one with each
// record, and the CRC-32C (uint32) of the log's salt and those three values. All are big endian.
//
// A header with a body length of zero is a mark. It means that the record with the same number has
// been synced. The mark follows that record, at the position where the next record will begin.
const walHeader = 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const saltSize = 8

// salt is a random value that is chosen for each store and stored in its snapshot. Because of the
// salt, nobody can craft a payload that looks like a record, and another store's log, such as one
// from a backup, is not read as this store's log.
type salt [saltSize]byte

func newSalt() (s salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// sum returns the checksum of a header.
func (s salt) sum(head []byte) uint32 {
	return crc32.Update(crc32.Checksum(s[:], castagnoli), castagnoli, head[:walHeader-4])
}

// putHead writes a header.
func (s salt) putHead(head, body []byte, seq uint64) {
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	binary.BigEndian.PutUint32(head[4:], crc32.Checksum(body, castagnoli))
	binary.BigEndian.PutUint64(head[8:], seq)
	binary.BigEndian.PutUint32(head[walHeader-4:], s.sum(head))
}

// walHead is a decoded header.
type walHead struct {
	length int64
	sum    uint32
	seq    uint64
}

// head decodes the header at the beginning of b. It returns false if there is no valid header. A
// record number greater than limit is invalid, so that a scan for headers can reject most positions
// without computing a checksum.
func (s salt) head(b []byte, limit uint64) (h walHead, ok bool) {
	if len(b) < walHeader {
		return h, false
	}
	h.seq = binary.BigEndian.Uint64(b[8:])
	if h.seq == 0 || h.seq > limit || binary.BigEndian.Uint32(b[walHeader-4:]) != s.sum(b) {
		return h, false
	}
	h.length, h.sum = int64(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
	return h, true
}

// walRecord contains the changes of one commit.
type walRecord struct {
	seq  uint64
	body []byte
	at   walPlace
}

// walPlace is the location of a record in the log.
type walPlace struct {
	file   int
	offset int64
	size   int64 // size including the header
}
