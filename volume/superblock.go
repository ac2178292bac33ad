package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/bourse-dev/bourse"
)

// superblock contains the relevant fields of an ext4 superblock; see Linux, Documentation/filesystems/ext4/super.rst.
type superblock struct {
	Blocks   int64
	Reserved int64 // blocks reserved for root
	Free     int64
	Overhead int64 // blocks that cannot contain data; 0 if never computed
	Block    int64 // block size in bytes
	Clean    bool  // whether the file system was unmounted cleanly
	Errors   bool  // whether the kernel has found damage
}

const (
	superblockAt    = 1024
	superblockBytes = 1024
	extMagic        = 0xef53
	has64Bit        = 0x80  // a feature that old kernels must not ignore
	hasChecksum     = 0x400 // old kernels may mount a file system with this feature, but only read-only
)

var errNoFS = errors.New("it does not contain an ext4 file system")

// readSuperblock reads the superblock of an image.
func readSuperblock(r io.ReaderAt) (superblock, error) {
	b := make([]byte, superblockBytes)
	if _, err := r.ReadAt(b, superblockAt); err != nil {
		if errors.Is(err, io.EOF) {
			return superblock{}, errNoFS
		}
		return superblock{}, err
	}
	return parseSuperblock(b)
}

// parseSuperblock parses a superblock. It accepts any bytes, because an image may be damaged.
func parseSuperblock(b []byte) (superblock, error) {
	le := binary.LittleEndian
	if len(b) < superblockBytes || le.Uint16(b[0x38:]) != extMagic {
		return superblock{}, errNoFS
	}
	if le.Uint32(b[0x64:])&hasChecksum != 0 && le.Uint32(b[0x3fc:]) != ^crc32.Checksum(b[:0x3fc], crc32.MakeTable(crc32.Castagnoli)) {
		return superblock{}, errors.New("the checksum of its superblock is wrong")
	}
	wide := le.Uint32(b[0x60:])&has64Bit != 0
	count := func(lo, hi int) int64 {
		n := uint64(le.Uint32(b[lo:]))
		if wide {
			n |= uint64(le.Uint32(b[hi:])) << 32
		}
		return int64(n & (1<<63 - 1))
	}
	size := le.Uint32(b[0x18:])
	sb := superblock{
		Blocks: count(0x4, 0x150), Reserved: count(0x8, 0x154), Free: count(0xc, 0x158),
		Overhead: int64(le.Uint32(b[0x248:])),
		Clean:    le.Uint16(b[0x3a:])&1 != 0, Errors: le.Uint16(b[0x3a:])&2 != 0,
	}
	if size > 6 || sb.Blocks == 0 || sb.Blocks > 1<<50 || sb.Free > sb.Blocks || sb.Reserved > sb.Blocks || sb.Overhead > sb.Blocks {
		return superblock{}, fmt.Errorf("its superblock is invalid: %d blocks, %d free", sb.Blocks, sb.Free)
	}
	sb.Block = 1024 << size
	return sb, nil
}

// usage returns the usage that statfs would report if the file system were mounted. When it mounts a file system, the
// kernel reserves a fiftieth of the blocks, at most 4096, for itself.
func (b superblock) usage() bourse.VolumeUsage {
	kept := b.Reserved + min(b.Blocks/50, 4096)
	total := b.Blocks - b.Overhead
	free := min(b.Free, total) // a guest may have written any value
	return bourse.VolumeUsage{BlockSize: b.Block, Blocks: total, BlocksFree: free, BlocksAvail: max(0, free-kept)}
}
