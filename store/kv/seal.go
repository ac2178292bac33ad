package kv

import (
	"encoding/binary"
	"hash/crc32"
)

// sealSize is the size of what is in front of each value in the file: the CRC-32C of
// its bucket, its key and the value.
const sealSize = 4

// sealOf returns the checksum of a value at its place.
func sealOf(bucket string, key, value []byte) uint32 {
	var lengths [4]byte
	binary.BigEndian.PutUint16(lengths[:], uint16(len(bucket)))
	binary.BigEndian.PutUint16(lengths[2:], uint16(len(key)))
	sum := crc32.Checksum(lengths[:], castagnoli)
	sum = crc32.Update(sum, castagnoli, []byte(bucket))
	sum = crc32.Update(sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, value)
}

// seal returns what is written of a value.
func seal(bucket string, key, value []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, sealSize+len(value)), sealOf(bucket, key, value))
	return append(b, value...)
}

// unseal returns a value and its checksum; ok is false when it is not what was
// written at this place.
func unseal(bucket string, key, stored []byte) (value []byte, sum uint32, ok bool) {
	if len(stored) < sealSize {
		return nil, 0, false
	}
	value, sum = stored[sealSize:len(stored):len(stored)], sealOf(bucket, key, stored[sealSize:])
	return value, sum, sum == binary.BigEndian.Uint32(stored)
}

// tally is how many keys a bucket of the file has, and the sum of their values'
// checksums. It shows a key that is missing, one that is there twice, and a page
// that is an older one of the same file.
type tally struct{ keys, sum uint64 }

func (t *tally) add(sum uint32) { t.keys, t.sum = t.keys+1, t.sum+uint64(sum) }

func (t *tally) remove(sum uint32) { t.keys, t.sum = t.keys-1, t.sum-uint64(sum) }

func (t tally) bytes() []byte {
	return binary.BigEndian.AppendUint64(uint64Bytes(t.keys), t.sum)
}

func tallyOf(b []byte) (t tally, ok bool) {
	if len(b) != 16 {
		return t, false
	}
	return tally{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
}

func uint64Bytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func uint64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
