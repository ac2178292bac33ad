package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Item is a key of a bucket with its value. It is good until the function that
// it was passed to returns.
type Item struct {
	Bucket     string
	Key, Value []byte
	Offset     int64 // of the value, in the file
}

// Damage is a place that does not hold what bbolt wrote there.
type Damage struct {
	Offset int64 // of the page, in the file
	Page   uint64
	What   string
}

func (d Damage) String() string { return fmt.Sprintf("page %d: %s", d.Page, d.What) }

// maxDamage bounds how much of the damage is described.
const maxDamage = 100

// maxDepth bounds the pages above a page: a tree of bbolt has a handful.
const maxDepth = 64

// File is a file of bbolt that is being read, or was. Its form is that of
// bbolt's version 2: pages of one size, the first two of which say in turn
// where the tree of buckets begins, and where the list of free pages is. Numbers
// are in the host's order of bytes, which is little endian wherever we run.
type File struct {
	from     io.ReaderAt
	size     int64
	meta     meta
	used     bitmap // pages of the trees
	free     bitmap
	freeKnow bool // the list of free pages is whole
	buffers  [maxDepth + 1][]byte
	visit    func(Item)
	top      bool // it is the tree of buckets that is being read

	Buckets map[string]bool // those that there are
	Damage  []Damage        // the first hundred
	More    int             // how many there are beyond those
}

// Read reads a file of a size, and calls visit with each key that can be reached.
// Without visit it finds out no more than which buckets there are. A file of size
// 0 is a new one, and whole.
func Read(from io.ReaderAt, size int64, visit func(Item)) *File {
	f := &File{from: from, size: size, visit: visit, Buckets: map[string]bool{}}
	if size == 0 || !f.readMeta() {
		return f
	}
	f.used, f.free = newBitmap(f.meta.pages), newBitmap(f.meta.pages)
	f.used.set(0)
	f.used.set(1)
	f.top = true
	f.tree("", f.meta.root, nil, nil, 0)
	if visit != nil {
		f.readFree()
	}
	return f
}

func (f *File) damaged(page uint64, format string, args ...any) {
	if len(f.Damage) == maxDamage {
		f.More++
		return
	}
	f.Damage = append(f.Damage, Damage{Page: page, Offset: int64(page) * int64(f.meta.pageSize), What: fmt.Sprintf(format, args...)})
}

const (
	pageHeader = 16 // its number (uint64), kind and count (uint16), and how many more it extends over (uint32)
	element    = 16

	kindBranch = 1
	kindLeaf   = 2
	kindFree   = 16

	bucketFlag   = 1
	bucketHeader = 16 // the number of its first page (0: the page is behind this) and its sequence
)

// page is the bytes of a page, whose header is whole, and where it is.
type page struct {
	number uint64
	bytes  []byte
	offset int64
	kind   uint16
	count  int
}

// claim reads a page that nothing else may use.
func (f *File) claim(number uint64, depth int) (p page, ok bool) {
	if number < 2 || number >= f.meta.pages {
		f.damaged(number, "there is no such page among %d", f.meta.pages)
		return p, false
	}
	p.number, p.offset = number, int64(number)*int64(f.meta.pageSize)
	var head [pageHeader]byte
	if _, err := f.from.ReadAt(head[:], p.offset); err != nil {
		f.damaged(number, "it cannot be read: %v", err)
		return p, false
	}
	more := uint64(binary.LittleEndian.Uint32(head[12:]))
	switch {
	case binary.LittleEndian.Uint64(head[:]) != number:
		f.damaged(number, "it says that it is page %d", binary.LittleEndian.Uint64(head[:]))
		return p, false
	case more >= f.meta.pages-number:
		f.damaged(number, "it extends beyond the file's end")
		return p, false
	}
	for n := number; n <= number+more; n++ {
		if f.used.has(n) {
			f.damaged(n, "it has two uses")
			return p, false
		}
	}
	for n := number; n <= number+more; n++ {
		f.used.set(n)
	}
	size := int(1+more) * f.meta.pageSize
	if cap(f.buffers[depth]) < size {
		f.buffers[depth] = make([]byte, size)
	}
	p.bytes = f.buffers[depth][:size]
	if _, err := f.from.ReadAt(p.bytes, p.offset); err != nil {
		f.damaged(number, "it cannot be read: %v", err)
		return p, false
	}
	p.kind, p.count = binary.LittleEndian.Uint16(p.bytes[8:]), int(binary.LittleEndian.Uint16(p.bytes[10:]))
	return p, true
}

// tree reads the pages of a bucket below one, whose keys are from low on and
// below high; nil has no bound.
func (f *File) tree(bucket string, number uint64, low, high []byte, depth int) {
	if depth >= maxDepth-1 { // the last is for those of a bucket within
		f.damaged(number, "too many pages are above it")
		return
	}
	p, ok := f.claim(number, depth)
	switch {
	case !ok:
	case p.kind == kindLeaf:
		f.leaf(bucket, p, low, high, depth)
	case p.kind == kindBranch && p.count > 0:
		f.branch(bucket, p, low, high, depth)
	default:
		f.damaged(number, "it is of no kind that there is")
	}
}

// part returns bytes of a page at a place relative to one of its elements.
func (p *page) part(i int, at, n uint32) []byte {
	begin := int64(pageHeader+i*element) + int64(at)
	end := begin + int64(n)
	if begin < int64(pageHeader+p.count*element) || end > int64(len(p.bytes)) {
		return nil
	}
	return p.bytes[begin:end:end]
}

// element returns the i-th element of a page; nil when it is not within it.
func (p *page) element(i int) []byte {
	begin := pageHeader + i*element
	if begin+element > len(p.bytes) {
		return nil
	}
	return p.bytes[begin : begin+element]
}

// order checks a key against the one before it, nil before the first, and its
// bounds.
func (f *File) order(p page, key, before, low, high []byte) bool {
	switch {
	case before != nil && bytes.Compare(key, before) <= 0, bytes.Compare(key, low) < 0, high != nil && bytes.Compare(key, high) >= 0:
		f.damaged(p.number, "its keys are not in order")
		return false
	}
	return true
}

// branch reads the pages below one.
func (f *File) branch(bucket string, p page, low, high []byte, depth int) {
	type child struct {
		key    []byte
		number uint64
	}
	children := make([]child, 0, min(p.count, len(p.bytes)/element))
	var before []byte
	for i := range p.count {
		e := p.element(i)
		if e == nil {
			f.damaged(p.number, "it has %d elements, which is too many", p.count)
			break
		}
		key := p.part(i, binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]))
		if len(key) == 0 {
			f.damaged(p.number, "element %d has no key", i)
		} else if f.order(p, key, before, low, high) {
			before = key
		}
		children = append(children, child{key, binary.LittleEndian.Uint64(e[8:])})
	}
	for i, c := range children {
		end := high
		if i+1 < len(children) {
			end = children[i+1].key
		}
		f.tree(bucket, c.number, c.key, end, depth+1)
	}
}

// leaf reads the keys of a page.
func (f *File) leaf(bucket string, p page, low, high []byte, depth int) {
	top := f.top
	var before []byte
	for i := range p.count {
		e := p.element(i)
		if e == nil {
			f.damaged(p.number, "it has %d elements, which is too many", p.count)
			return
		}
		at, n, size := binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
		key := p.part(i, at, n)
		both := p.part(i, at, n+size)
		if len(key) == 0 || uint64(n)+uint64(size) > uint64(len(p.bytes)) || both == nil {
			f.damaged(p.number, "element %d is not within it", i)
			continue
		}
		if f.order(p, key, before, low, high) {
			before = key
		}
		value := both[n:]
		switch flags := binary.LittleEndian.Uint32(e); {
		case top && flags == bucketFlag:
			f.bucket(string(key), p, value, depth)
		case !top && flags == 0:
			f.visit(Item{bucket, key, value, p.offset + int64(pageHeader+i*element) + int64(at) + int64(n)})
		default:
			f.damaged(p.number, "element %d has flags %#x", i, flags)
		}
	}
}

// bucket reads a bucket whose value is in a page of the tree of buckets.
func (f *File) bucket(name string, p page, value []byte, depth int) {
	f.top = false
	defer func() { f.top = true }()
	f.Buckets[name] = true
	if f.visit == nil {
		return
	}
	if len(value) < bucketHeader {
		f.damaged(p.number, "bucket %q has no beginning", name)
		return
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		f.tree(name, root, nil, nil, depth+1)
		return
	}
	within := page{number: p.number, bytes: value[bucketHeader:], offset: p.offset}
	if len(within.bytes) < pageHeader || binary.LittleEndian.Uint16(within.bytes[8:]) != kindLeaf {
		f.damaged(p.number, "bucket %q has no page", name)
		return
	}
	within.kind, within.count = kindLeaf, int(binary.LittleEndian.Uint16(within.bytes[10:]))
	f.leaf(name, within, nil, nil, depth)
}
