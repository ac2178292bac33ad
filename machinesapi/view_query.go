package machinesapi

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewQuery is a statement to run on the view. It is the body of a query or a subscription.
// Parameters are nil, numbers, strings, bools and [ViewBlob]s.
type ViewQuery struct {
	Statement string         // a single SELECT, at most 64 KiB long
	Params    []any          // values for each ?, in order
	Named     map[string]any // values for :name, @name and $name, keyed by name without the sign; used instead of Params

	// MaxRows and MaxTime limit the query's result. They apply if they are lower than the server's
	// limits. 0 means the server's limit.
	MaxRows int
	MaxTime time.Duration

	// Key lists the columns that identify a row of a subscription across changes. The default is "id"
	// or, if there is no such column, "name". If both are missing, all columns are used.
	Key []string
}

// MarshalJSON encodes the query as a request's body.
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

// ViewBlob is a binary value in a parameter or a cell.
type ViewBlob struct {
	Blob []byte `json:"blob"`
}

// HeaderSubscription contains a subscription's ID. The reply that streams the subscription has this header.
const HeaderSubscription = "Bourse-Subscription-Id"

// ViewLine is one line of a result. Exactly one field is set.
//
// The result of a query consists of Columns, Rows and End. A subscription continues with Changes
// after its End. A resumed subscription may omit the columns and rows, because its reader already
// has them.
type ViewLine struct {
	Columns []string
	Row     *ViewRow
	End     *ViewEnd
	Change  *ViewChange
}

// ViewRow is one row. Each cell is nil, a json.Number, a string or a [ViewBlob]. A number has a fraction or an exponent
// if the value is a REAL in SQLite. An invalid cell, which brokers do not send, has the type that encoding/json uses when
// it decodes into an any.
type ViewRow struct {
	ID    int64 // number of the row within the subscription; 0 in a query's result
	Cells []any
}

// ViewEnd is the line that follows the last row of a result.
type ViewEnd struct {
	Rows      int64   `json:"rows"`
	MS        float64 `json:"ms"`                  // how long the query took on the server, in milliseconds
	Truncated bool    `json:"truncated,omitempty"` // rows are missing, because the limit was reached
	Change    uint64  `json:"change,omitempty"`    // for a subscription: number of the last change that the rows include
}

// ViewChange is a change of one row of a subscription.
type ViewChange struct {
	ID   uint64 // one more than the ID of the previous change
	Kind ViewChangeKind
	Row  ViewRow // if the row was deleted, its last contents
}

// ViewChangeKind is the type of a change.
type ViewChangeKind string

// Types of changes.
const (
	RowInserted ViewChangeKind = "insert"
	RowUpdated  ViewChangeKind = "update"
	RowDeleted  ViewChangeKind = "delete"
)

// ViewError is the last line of a result if an error occurred on the server.
type ViewError struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}
