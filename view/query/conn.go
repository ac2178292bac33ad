package query

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bourse-dev/bourse/view/wire"
)

// maxLength is the maximum length of a value or row in a statement, in bytes. It exceeds the
// maximum length of the view's rows.
const maxLength = wire.MaxRow + 256<<10

// MaxStatement is the maximum length of a statement's text, in bytes.
const MaxStatement = 64 << 10

// maxParams is the maximum number of parameters of a statement.
const maxParams = 256

// connLimits are the limits that SQLite itself enforces on a connection.
//
// Source: https://sqlite.org/limits.html
var connLimits = map[sqlite.Limit]int32{
	sqlite.LimitLength:            maxLength,
	sqlite.LimitSQLLength:         MaxStatement + 1,
	sqlite.LimitColumn:            128,
	sqlite.LimitExprDepth:         100,
	sqlite.LimitCompoundSelect:    50,
	sqlite.LimitVDBEOp:            25_000,
	sqlite.LimitFunctionArg:       100,
	sqlite.LimitAttached:          0,
	sqlite.LimitLikePatternLength: 64, // matching takes time proportional to the product of the pattern's and the text's lengths
	sqlite.LimitVariableNumber:    maxParams,
	sqlite.LimitTriggerDepth:      1,
	sqlite.LimitWorkerThreads:     0,
}

// connPragmas configure a connection. They are executed before the authorizer is set, because the
// authorizer would refuse them. Temporary tables stay in memory, where the statement's memory limit
// applies to them and they cannot fill the disk.
var connPragmas = []string{
	"PRAGMA query_only = ON",
	"PRAGMA temp_store = MEMORY",
	"PRAGMA cache_size = -4096",
	"PRAGMA mmap_size = 0",
	"PRAGMA trusted_schema = OFF",
	"PRAGMA cell_size_check = ON",
}

// reader is a connection to the view's file. It is useless after the file has been replaced.
type reader struct {
	conn    *sqlite.Conn
	account *account
	release func()      // closes the connection's memory account
	file    os.FileInfo // identifies the file that the connection reads
	tables  map[string]bool
}

// pool holds idle connections to the file at the source's path.
type pool struct {
	path   func() string
	memory int64
	keep   int // maximum number of idle connections

	mu   sync.Mutex
	idle []*reader
}

// get returns a connection to the current file. The caller must call put to return the connection.
// Errors: unavailable.
func (p *pool) get() (*reader, error) {
	path := p.path()
	if path == "" {
		return nil, unavailable(errors.New("the view is in memory"))
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, unavailable(err)
	}
	p.prune(file)
	if r := p.take(file); r != nil {
		return r, nil
	}
	// If the file is replaced while it is being opened, the connection may combine one file's pages
	// with the other file's write-ahead log.
	for range 3 {
		r, err := openReader(path, p.memory)
		if err != nil {
			return nil, unavailable(err)
		}
		again, err := os.Stat(path)
		if err == nil && os.SameFile(again, r.file) {
			return r, nil
		}
		r.close()
	}
	return nil, unavailable(errors.New("the file is being replaced"))
}

// take returns an idle connection to the given file, or nil if there is none. It skips connections
// to replaced files, which the pool may contain if they were returned after the last prune.
func (p *pool) take(file os.FileInfo) *reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range slices.Backward(p.idle) {
		if os.SameFile(file, r.file) {
			p.idle = slices.Delete(p.idle, i, i+1)
			return r
		}
	}
	return nil
}

// put returns a connection to the pool. If the connection has failed or the pool is full, put
// closes it.
func (p *pool) put(r *reader, failed bool) {
	p.mu.Lock()
	if keep := !failed && len(p.idle) < p.keep; keep {
		p.idle = append(p.idle, r)
		r = nil
	}
	p.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// prune closes all idle connections except those to the given file. If file is nil, it closes all
// of them.
func (p *pool) prune(file os.FileInfo) {
	var old []*reader
	p.mu.Lock()
	kept := p.idle[:0]
	for _, r := range p.idle {
		// SameFile is reliable, because the inode number of an open file is not reused.
		if file != nil && os.SameFile(file, r.file) {
			kept = append(kept, r)
		} else {
			old = append(old, r)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	p.mu.Unlock()
	for _, r := range old {
		r.close()
	}
}

// refresh closes idle connections to a file that has been deleted or replaced. Otherwise, the file's disk
// space would remain allocated.
func (p *pool) refresh() {
	file, err := os.Stat(p.path())
	if err != nil {
		file = nil
	}
	p.prune(file)
}

func openReader(path string, memory int64) (*reader, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: conn, file: file, tables: map[string]bool{}}
	r.account, r.release = openAccount(conn, memory)
	if err := r.prepare(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *reader) prepare() error {
	r.conn.SetBusyTimeout(time.Second) // the file is locked only while another connection recovers the write-ahead log
	if err := r.conn.SetDefensive(true); err != nil {
		return err
	}
	if err := replaceFunctions(r.conn); err != nil {
		return fmt.Errorf("replace functions: %w", err)
	}
	for _, pragma := range connPragmas { // run individually, because ExecuteScript panics if the file is damaged
		if err := sqlitex.ExecuteTransient(r.conn, pragma, nil); err != nil {
			return fmt.Errorf("set up the connection: %w", err)
		}
	}
	for limit, value := range connLimits {
		r.conn.Limit(limit, value)
	}
	// This statement also makes SQLite open the write-ahead log.
	return sqlitex.ExecuteTransient(r.conn, "SELECT lower(name) FROM sqlite_schema WHERE type IN ('table', 'view')", &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error {
			r.tables[stmt.ColumnText(0)] = true
			return nil
		},
	})
}

func (r *reader) close() {
	_ = r.conn.Close() // the connection is read-only, so nothing can be lost
	r.release()
}
