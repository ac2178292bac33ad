package inventory

import (
	"encoding/json"
	"time"

	"zombiezen.com/go/sqlite"
)

// cells decodes the columns of a statement's current row. It reuses one buffer for all rows.
type cells struct {
	*sqlite.Stmt
	buf []byte
}

// json decodes a column into v. If the column does not contain JSON of v's type, json returns false, and v may be
// partly filled.
func (r *cells) json(column int, v any) bool {
	n := r.ColumnLen(column)
	if n > cap(r.buf) {
		r.buf = make([]byte, n, 2*n)
	}
	b := r.buf[:n]
	r.ColumnBytes(column, b)
	return json.Unmarshal(b, v) == nil
}

func (r *cells) time(column int) time.Time { return timeOf(r.ColumnInt64(column)) }

// empty reports whether a column is empty or contains an empty list or object. Such columns are
// common, and callers need not decode them.
func (r *cells) empty(column int) bool { return r.ColumnLen(column) <= len("{}") }
