package pages

import (
	"encoding/binary"
	"hash/fnv"
)

// meta is one of the first two pages: what the file is as of one transaction.
type meta struct {
	pageSize int
	root     uint64
	free     uint64
	pages    uint64 // how many have ever been used
	txid     uint64
}

const (
	metaSize    = 64 // without the page's header
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFree      = ^uint64(0) // there is no list of free pages

	minPageSize = 512
	maxPageSize = 64 << 10
)

// metaAt reads a meta page at a place of the file.
func (f *File) metaAt(offset int64) (m meta, ok bool) {
	var b [metaSize]byte
	if _, err := f.from.ReadAt(b[:], offset+pageHeader); err != nil {
		return m, false
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:metaSize-8])
	if binary.LittleEndian.Uint32(b[:]) != metaMagic || binary.LittleEndian.Uint32(b[4:]) != metaVersion ||
		binary.LittleEndian.Uint64(b[metaSize-8:]) != h.Sum64() {
		return m, false
	}
	m = meta{
		pageSize: int(binary.LittleEndian.Uint32(b[8:])),
		root:     binary.LittleEndian.Uint64(b[16:]),
		free:     binary.LittleEndian.Uint64(b[32:]),
		pages:    binary.LittleEndian.Uint64(b[40:]),
		txid:     binary.LittleEndian.Uint64(b[48:]),
	}
	return m, m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}

// readMeta finds out as of which transaction the file is. bbolt takes the
// later of the two that are whole. When one is not, it may have been the later:
// that is damage, for the store has promised what it wrote then. Both lie in one
// sector each, which a loss of power leaves whole.
func (f *File) readMeta() bool {
	first, ok := f.metaAt(0)
	second, okay := meta{}, false
	for size := minPageSize; size <= maxPageSize && !okay; size *= 2 {
		if ok && size != first.pageSize {
			continue
		}
		if second, okay = f.metaAt(int64(size)); okay && second.pageSize != size {
			okay = false
		}
	}
	if f.meta = first; okay && (!ok || second.txid > first.txid) {
		f.meta = second
	}
	if !ok {
		f.damaged(0, "its checksum does not match, so the latest changes may be missing")
	}
	if !okay {
		f.damaged(1, "its checksum does not match, so the latest changes may be missing")
	}
	if !ok && !okay {
		return false
	}
	if have := uint64(f.size) / uint64(f.meta.pageSize); f.meta.pages > have {
		f.damaged(have, "the file ends here, and had %d pages", f.meta.pages)
		f.meta.pages = have
	}
	return true
}
