package query

// This is the wire format. Package machinesapi implements the client's side.
//
//	POST /v1/view/queries
//	{"statement": "SELECT id, state FROM machines WHERE app = ?", "params": ["web"], "max_rows": 100, "max_ms": 1000}
//
// statement is one SELECT (or VALUES, or PRAGMA table_info and similar) of at most 64 KiB. params is an array for ?, ?1
// and so on, or an object for :name, @name and $name, whose member names omit the prefix. max_rows and max_ms lower
// the server's limits; if they are absent or 0, the server's limits apply. The reply is application/x-ndjson, with one
// JSON object per line:
//
//	{"columns":["id","state"]}
//	{"row":["a1b2c3d4e5f607","started"]}
//	{"end":{"rows":1,"ms":2,"truncated":false}}
//
// truncated is true if there were more rows than max_rows or the server's limits allow. An error that occurs before
// the first line is reported as an HTTP error. A later error is reported by the last line:
//
//	{"error":{"code":"timeout","message":"the statement took longer than 5s"}}
//
// A stream without an end or error line is incomplete.
//
// Values: NULL is null. An INTEGER is a number without a fraction, exact to 64 bits. A REAL always has a fraction or
// exponent; infinity is the string "Inf" or "-Inf". TEXT is a string in which invalid UTF-8 is replaced. A BLOB is
// {"blob":"<base64>"}. Parameters use the same encoding. In addition, true means 1, and false means 0.
//
//	POST /v1/view/subscriptions
//	{"statement": "SELECT id, state FROM machines", "params": [], "key": ["id"]}
//
// The reply has status 201, the headers Location: /v1/view/subscriptions/{id} and Bourse-Subscription-Id: {id}, and the
// lines
//
//	{"columns":["id","state"]}
//	{"row":[1,["a1b2c3d4e5f607","started"]]}
//	{"end":{"change":4}}
//	{"change":[5,"update",1,["a1b2c3d4e5f607","stopped"]]}
//	{"change":[6,"insert",2,["a1b2c3d4e5f608","created"]]}
//	{"change":[7,"delete",2,["a1b2c3d4e5f608","created"]]}
//
// The number before the values identifies a row as long as it is in the result. The rows are the
// result as of the change whose number the end line contains. Each line after the end line is the
// next change; changes are numbered without gaps. A delete contains the row's last values. A result
// is a set, so changes do not report its order.
//
// key lists the columns that identify a row across changes. The default is the column "id" or, if
// there is none, "name". If there is neither, all columns identify a row, and there are no
// updates. Rows with the same key are distinguished by their order.
//
//	GET /v1/view/subscriptions/{id}?from=5
//
// resumes a subscription: the reply contains the columns, and then the changes that follow change 5. Without from, the
// reply also contains the rows before the changes. The error not_found means that the subscription has ended (a minute
// after its last reader left), or that the changes are no longer available. In both cases, subscribe again. If the
// server ends a stream, the last line is an error line. The code unavailable means that the reader was too slow or
// that the server is stopping; the reader may resume. Any other code means that the subscription itself has ended.

// TypeLines is the content type of replies.
const TypeLines = "application/x-ndjson"

// HeaderSubscription is the header that contains a new subscription's ID.
const HeaderSubscription = "Bourse-Subscription-Id"

// Line is one line of a reply. Exactly one field is set. It is for clients; the server encodes lines without it.
type Line struct {
	Columns []string `json:"columns,omitempty"`
	Row     []any    `json:"row,omitempty"`    // in a subscription: the row's number and values
	Change  []any    `json:"change,omitempty"` // change number; insert, update or delete; row number; values
	End     *End     `json:"end,omitempty"`
	Error   *Failure `json:"error,omitempty"`
}

// End is the content of the line after a query's rows, or after the initial rows of a subscription.
type End struct {
	Rows      int   `json:"rows"`
	MS        int64 `json:"ms"`
	Truncated bool  `json:"truncated"`
	Change    int64 `json:"change"` // used only in subscriptions, which do not use the other fields
}

// Failure is the content of an error line.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Operations in a change line.
const (
	opInsert = "insert"
	opUpdate = "update"
	opDelete = "delete"
)
