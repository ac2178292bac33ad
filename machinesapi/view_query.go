package machinesapi

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewQuery is one statement asked of the view: the body of queries and of
// subscriptions. Parameters are nil, numbers, strings, bools and [ViewBlob]s.
type ViewQuery struct {
	Statement string         // one SELECT, 64 KiB at most
	Params    []any          // for each ?, in order
	Named     map[string]any // for :name, @name and $name, without the sign; instead of Params

	// Of a query: lower limits than the server's. 0 leaves its own.
	MaxRows int
	MaxTime time.Duration

	// Of a subscription: the columns by which a changed row is recognised.
	// Default: "id", else "name", else all of them.
	Key []string
}

// MarshalJSON writes the request's body.
func (q ViewQuery) MarshalJSON() ([]byte, error) {
	body := struct {
		Statement string   `json:"statement"`
		Params    any      `json:"params,omitempty"`
		MaxRows   int      `json:"max_rows,omitempty"`
		MaxMS     int64    `json:"max_ms,omitempty"`
		Key       []string `json:"key,omitempty"`
	}{Statement: q.Statement, MaxRows: q.MaxRows, MaxMS: q.MaxTime.Milliseconds(), Key: q.Key}
	switch {
	case len(q.Named) > 0:
		body.Params = q.Named
	case len(q.Params) > 0:
		body.Params = q.Params
	}
	return json.Marshal(body)
}

// ViewBlob is a value of bytes.
type ViewBlob struct {
	Blob []byte `json:"blob"`
}

// HeaderSubscription names a subscription in the reply that streams it.
const HeaderSubscription = "Bourse-Subscription-Id"

// ViewLine is one line of an answer. Exactly one of its fields is set.
//
// An answer to a query is Columns, Rows and End. A subscription goes on with
// Changes after its End. One that is resumed may leave out columns and rows:
// its reader has them.
type ViewLine struct {
	Columns []string
	Row     *ViewRow
	End     *ViewEnd
	Change  *ViewChange
}

// ViewRow is one row. A cell is nil, a json.Number (with a fraction or an
// exponent when SQLite has it as a REAL), a string or a [ViewBlob]; what else a
// server sends is kept as JSON decodes it.
type ViewRow struct {
	ID    int64 // within the subscription; 0 in the answer to a query
	Cells []any
}

// ViewEnd comes after the last row.
type ViewEnd struct {
	Rows      int64   `json:"rows"`
	MS        float64 `json:"ms"`                  // that the query took, in the server
	Truncated bool    `json:"truncated,omitempty"` // there are more: the server's limit was reached
	Change    uint64  `json:"change,omitempty"`    // of a subscription: the rows are as after this change
}

// ViewChange is a change of one row of a subscription.
type ViewChange struct {
	ID   uint64 // one more than that of the change before it
	Kind ViewChangeKind
	Row  ViewRow // of a deleted one: as it last was
}

// ViewChangeKind is what happened to a row.
type ViewChangeKind string

// What may happen to a row.
const (
	RowInserted ViewChangeKind = "insert"
	RowUpdated  ViewChangeKind = "update"
	RowDeleted  ViewChangeKind = "delete"
)

// ViewError is the last line of an answer that broke off in the server.
type ViewError struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}
