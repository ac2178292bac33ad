package machinesapi

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// ViewQuery is a statement to run on the view: the body of queries and subscriptions. Parameters are nil, numbers,
// strings, bools and [ViewBlob]s.
type ViewQuery struct {
	Statement string         // one SELECT, at most 64 KiB
	Params    []any          // for each ?, in order
	Named     map[string]any // for :name, @name and $name, without the sign; instead of Params

	// Limits of a query, if lower than the server's. 0 means the server's limit.
	MaxRows int
	MaxTime time.Duration

	// Columns that identify a changed row of a subscription. Default: "id", otherwise "name", otherwise all columns.
	Key []string
}

// MarshalJSON encodes the request's body.
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

// ViewBlob is a binary value.
type ViewBlob struct {
	Blob []byte `json:"blob"`
}

// HeaderSubscription contains the ID of a subscription, in the reply that streams it.
const HeaderSubscription = "Bourse-Subscription-Id"

// ViewLine is one line of a result. Exactly one field is set.
//
// The result of a query consists of Columns, Rows and End. A subscription continues with Changes after its End. A
// resumed one may omit columns and rows, because its reader already has them.
type ViewLine struct {
	Columns []string
	Row     *ViewRow
	End     *ViewEnd
	Change  *ViewChange
}

// ViewRow is one row. A cell is nil, a json.Number (with a fraction or exponent if it is a REAL in SQLite), a string
// or a [ViewBlob]. Other values are decoded as in encoding/json.
type ViewRow struct {
	ID    int64 // within the subscription; 0 in a query's result
	Cells []any
}

// ViewEnd follows the last row.
type ViewEnd struct {
	Rows      int64   `json:"rows"`
	MS        float64 `json:"ms"`                  // duration of the query in the server
	Truncated bool    `json:"truncated,omitempty"` // the server's limit was reached, and there are more rows
	Change    uint64  `json:"change,omitempty"`    // of a subscription: the rows are the result after this change
}

// ViewChange is a change of one row of a subscription.
type ViewChange struct {
	ID   uint64 // one more than the previous change's ID
	Kind ViewChangeKind
	Row  ViewRow // of a deleted row: its last contents
}

// ViewChangeKind is the kind of a change.
type ViewChangeKind string

// Kinds of changes.
const (
	RowInserted ViewChangeKind = "insert"
	RowUpdated  ViewChangeKind = "update"
	RowDeleted  ViewChangeKind = "delete"
)

// ViewError is the last line of a result that ended with an error in the server.
type ViewError struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}
