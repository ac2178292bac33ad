package query

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// A statement can make SQLite allocate without end, and in places where
// neither its interrupt nor its authorizer is asked: while it expands nested
// subqueries before it runs (a text of 600 bytes takes minutes and gigabytes),
// and in straight code that builds thousands of long strings. SQLite's own
// heap limit counts the whole process, is compiled out here, and would stop
// the view's writer as well. So SQLite gets an allocator that keeps an account
// for each connection asked by strangers: what exceeds it, or comes after the
// statement's time, is refused, which SQLite turns into an orderly error
// wherever it happens to be.
//
// Source: https://sqlite.org/malloc.html, "Application-defined memory
// allocators".

// account is what one connection may allocate. SQLite asks it on the
// connection's goroutine; anyone may stop it.
type account struct {
	limit   int64
	used    atomic.Int64
	stopped atomic.Bool // nothing more is given
	refused atomic.Bool // something was, for want of room
}

// take charges n bytes, or says that they are not to be had.
func (a *account) take(n int64) bool {
	if a.stopped.Load() {
		return false
	}
	if a.used.Add(n) > a.limit {
		a.used.Add(-n)
		a.refused.Store(true)
		return false
	}
	return true
}

// begin makes the account ready for another statement.
func (a *account) begin() {
	a.stopped.Store(false)
	a.refused.Store(false)
}

// heap is the allocator's state, one for the process because SQLite has one.
var heap struct {
	watched atomic.Int32 // how many accounts there are: without any, none is looked for
	byTLS   sync.Map     // *libc.TLS of a connection to *account
	byID    sync.Map     // uintptr to *account
	nextID  atomic.Uintptr
}

// block stands before what SQLite gets. SQLite wants 8 bytes of alignment, and
// asks for the size of a block.
type block struct {
	size    int64
	account uintptr // its id, 0 without one
}

const blockSize = unsafe.Sizeof(block{})

// BoundMemory returns SQLite the allocator that bounds what each statement may
// take. It concerns the whole process and must be called before its first
// SQLite connection is opened, by the view or anyone; calling it again is
// harmless. Other connections are not bounded by it. Codes: internal.
func BoundMemory() error { return boundMemory() }

var boundMemory = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	methods := lib.Tsqlite3_mem_methods{
		FxMalloc: funcPointer(heapMalloc), FxFree: funcPointer(heapFree), FxRealloc: funcPointer(heapRealloc),
		FxSize: funcPointer(heapSize), FxRoundup: funcPointer(heapRoundup),
		FxInit: funcPointer(heapInit), FxShutdown: funcPointer(heapShutdown),
	}
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods)))
	if p == 0 {
		return errors.New("no memory")
	}
	defer libc.Xfree(tls, p)
	*at[lib.Tsqlite3_mem_methods](p) = methods
	args := libc.NewVaList(p)
	defer libc.Xfree(tls, args)
	if rc := lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_MALLOC, args); rc != lib.SQLITE_OK {
		return errors.New("SQLite was in use before query.BoundMemory was called")
	}
	return nil
})

// openAccount puts a connection under a limit. close takes it away again, when
// the connection is closed.
func openAccount(conn *sqlite.Conn, limit int64) (a *account, done func()) {
	a = &account{limit: limit}
	tls := tlsOf(conn)
	id := heap.nextID.Add(1)
	heap.byID.Store(id, a)
	heap.byTLS.Store(tls, owner{id, a})
	heap.watched.Add(1)
	return a, func() {
		heap.watched.Add(-1)
		heap.byTLS.Delete(tls)
		heap.byID.Delete(id)
	}
}

type owner struct {
	id uintptr
	*account
}

func ownerOf(tls *libc.TLS) owner {
	if heap.watched.Load() == 0 {
		return owner{}
	}
	o, _ := heap.byTLS.Load(unsafe.Pointer(tls))
	who, _ := o.(owner)
	return who
}

// give returns n bytes to the account that they were taken from.
func give(id uintptr, n int64) {
	if id == 0 {
		return
	}
	if a, ok := heap.byID.Load(id); ok {
		a.(*account).used.Add(-n)
	}
}

func heapMalloc(tls *libc.TLS, n int32) uintptr {
	who := ownerOf(tls)
	if who.account != nil && !who.take(int64(n)) {
		return 0
	}
	p := libc.Xmalloc(tls, libc.Tsize_t(n)+libc.Tsize_t(blockSize))
	if p == 0 {
		give(who.id, int64(n))
		return 0
	}
	*at[block](p) = block{int64(n), who.id}
	return p + blockSize
}

func heapFree(tls *libc.TLS, p uintptr) {
	p -= blockSize
	b := *at[block](p)
	give(b.account, b.size)
	libc.Xfree(tls, p)
}

func heapRealloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	p -= blockSize
	old := *at[block](p)
	who := ownerOf(tls)
	// Whole and not by the difference: a growing block may have to be copied.
	if who.account != nil && !who.take(int64(n)) {
		return 0
	}
	p = libc.Xrealloc(tls, p, libc.Tsize_t(n)+libc.Tsize_t(blockSize))
	if p == 0 {
		give(who.id, int64(n))
		return 0
	}
	give(old.account, old.size)
	*at[block](p) = block{int64(n), who.id}
	return p + blockSize
}

func heapSize(_ *libc.TLS, p uintptr) int32 { return int32(at[block](p - blockSize).size) }

func heapRoundup(_ *libc.TLS, n int32) int32 { return (n + 7) &^ 7 }

func heapInit(*libc.TLS, uintptr) int32 { return lib.SQLITE_OK }

func heapShutdown(*libc.TLS, uintptr) {}

// at reads an address of C memory, which the garbage collector does not know.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// funcPointer makes a C function pointer of a declared function, as the
// translated C code calls them: a pointer to a function value.
func funcPointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }
