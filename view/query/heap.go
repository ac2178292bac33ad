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

// A statement can make SQLite allocate unlimited memory even where SQLite neither checks for interrupts nor asks the
// authorizer. This is the case while SQLite expands nested subqueries before it runs the statement (600 bytes of
// text can take minutes and gigabytes), and in code without loops that builds thousands of long strings. SQLite's
// own heap limit applies to the whole process, is not compiled into this library, and would also stop the view's
// writer. Therefore, SQLite uses our allocator, which maintains an account for each connection that runs untrusted
// statements. It refuses allocations beyond the account's limit or after the statement's time limit. SQLite turns a
// refusal into a regular error.
//
// Source: https://sqlite.org/malloc.html, "Application-defined memory allocators".

// account limits one connection's allocations. It is charged only by the allocator, on the
// connection's goroutine. Any goroutine may stop it.
type account struct {
	limit   int64
	used    atomic.Int64
	stopped atomic.Bool // whether all further allocations are refused
	refused atomic.Bool // whether an allocation was refused because of the limit
}

// take charges n bytes to the account. It returns false if that would exceed the limit, or if the
// account is stopped.
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

// begin resets the account for the next statement.
func (a *account) begin() {
	a.stopped.Store(false)
	a.refused.Store(false)
}

// heap is the state of the allocator. It is global, because SQLite has only one allocator per
// process.
var heap struct {
	watched atomic.Int32 // number of accounts; if it is 0, lookups are skipped
	byTLS   sync.Map     // accounts by their connection's *libc.TLS
	byID    sync.Map     // accounts by ID, a uintptr
	nextID  atomic.Uintptr
}

// block is the header that precedes each allocation. SQLite requires 8-byte alignment, and must be able to query
// the size of an allocation.
type block struct {
	size    int64
	account uintptr // ID of the account to credit when the block is freed; 0 if there is none
}

const blockSize = unsafe.Sizeof(block{})

// BoundMemory installs an allocator that limits each statement's memory. It replaces SQLite's
// allocator for the whole process, but limits only the connections of this package. Call it before
// the process opens its first SQLite connection. Further calls have no effect. Errors: internal.
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
		return errors.New("allocate SQLite's configuration: out of memory")
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

// openAccount opens an account with the given limit for a connection. Call done after closing the
// connection.
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

// credit credits n freed bytes to an account.
func credit(id uintptr, n int64) {
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
		credit(who.id, int64(n))
		return 0
	}
	*at[block](p) = block{int64(n), who.id}
	return p + blockSize
}

func heapFree(tls *libc.TLS, p uintptr) {
	p -= blockSize
	b := *at[block](p)
	credit(b.account, b.size)
	libc.Xfree(tls, p)
}

func heapRealloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	p -= blockSize
	old := *at[block](p)
	who := ownerOf(tls)
	// Charge the whole new size, because the block may have to be copied.
	if who.account != nil && !who.take(int64(n)) {
		return 0
	}
	p = libc.Xrealloc(tls, p, libc.Tsize_t(n)+libc.Tsize_t(blockSize))
	if p == 0 {
		credit(who.id, int64(n))
		return 0
	}
	credit(old.account, old.size)
	*at[block](p) = block{int64(n), who.id}
	return p + blockSize
}

func heapSize(_ *libc.TLS, p uintptr) int32 { return int32(at[block](p - blockSize).size) }

func heapRoundup(_ *libc.TLS, n int32) int32 { return (n + 7) &^ 7 }

func heapInit(*libc.TLS, uintptr) int32 { return lib.SQLITE_OK }

func heapShutdown(*libc.TLS, uintptr) {}

// at returns a pointer to an address in C memory, which the garbage collector does not manage.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// funcPointer returns f as a C function pointer. In the translated C code, that is a pointer to a function value.
func funcPointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }
