package pages

import "encoding/binary"

// manyFree is the count of a list that has its own count in front.
const manyFree = 0xFFFF

// readFree reads the list of free pages. A page that is in use and free would be
// written over. A page that is neither is lost space, and no damage.
func (f *File) readFree() {
	if f.meta.free == noFree {
		return
	}
	p, ok := f.claim(f.meta.free, maxDepth)
	if !ok {
		return
	}
	ids := p.bytes[pageHeader:]
	n := uint64(p.count)
	if n == manyFree && len(ids) >= 8 {
		n, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if p.kind != kindFree || n > uint64(len(ids)/8) {
		f.damaged(p.number, "it is no list of free pages")
		return
	}
	before := uint64(1)
	f.freeKnow = true
	for i := range n {
		id := binary.LittleEndian.Uint64(ids[8*i:])
		if id <= before || id >= f.meta.pages || f.used.has(id) {
			f.damaged(p.number, "page %d cannot be free", id)
			f.freeKnow = false
			continue
		}
		f.free.set(id)
		before = id
	}
}

// Lost calls visit with the keys of pages that are neither free nor reachable:
// those below a damaged page. Which bucket they are of is not known. It has no
// answer when the list of free pages is damaged, since free pages hold what was
// replaced and removed.
func (f *File) Lost(visit func(Item)) {
	if !f.freeKnow {
		return
	}
	f.visit, f.top = visit, false
	for n := uint64(2); n < f.meta.pages; n++ {
		if f.used.has(n) || f.free.has(n) {
			continue
		}
		if p, ok := f.claim(n, 0); ok && p.kind == kindLeaf {
			f.leaf("", p, nil, nil, 0)
		}
	}
}

// bitmap is a set of pages.
type bitmap []uint64

func newBitmap(n uint64) bitmap { return make(bitmap, n/64+1) }

func (b bitmap) set(n uint64) { b[n/64] |= 1 << (n % 64) }

func (b bitmap) has(n uint64) bool { return b[n/64]&(1<<(n%64)) != 0 }

// Size returns how many bytes the pages of the file take. It may be longer.
func (f *File) Size() int64 { return int64(f.meta.pages) * int64(f.meta.pageSize) }

// Used reports whether a page can be reached.
func (f *File) Used(page uint64) bool { return page < f.meta.pages && f.used.has(page) }
