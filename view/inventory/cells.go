package inventory

import (
	"encoding/json"
	"time"

	"zombiezen.com/go/sqlite"
)

// cells reads the columns of a result by their place. It keeps a buffer from
// row to row.
type cells struct {
	*sqlite.Stmt
	buf []byte
}

// json decodes a column into v. It returns false, and v is half filled, when that
// is no JSON of v's shape: a newer release may write another one.
func (r *cells) json(column int, v any) bool {
	n := r.ColumnLen(column)
	if n > cap(r.buf) {
		r.buf = make([]byte, n, 2*n)
	}
	b := r.buf[:n]
	r.ColumnBytes(column, b)
	return json.Unmarshal(b, v) == nil
}

func (r *cells) time(column int) time.Time { return moment(r.ColumnInt64(column)) }

// empty reports whether a column holds a list or object without anything
// in it, which is common and needs no decoding.
func (r *cells) empty(column int) bool { return r.ColumnLen(column) <= len("{}") }
