package query

// The wire format. Machinesapi mirrors it; it is for machines and people.
//
//	POST /v1/view/queries
//	{"statement": "SELECT id, state FROM machines WHERE app = ?", "params": ["web"], "max_rows": 100, "max_ms": 1000}
//
// statement is one SELECT (or VALUES, or PRAGMA table_info and its like) of at
// most 64 KiB. params is an array for ?, ?1 and so on, or an object for :name,
// @name and $name, its members without the sign. max_rows and max_ms lower the
// server's limits; absent or 0 leaves them. The reply is application/x-ndjson,
// one line each:
//
//	{"columns":["id","state"]}
//	{"row":["a1b2c3d4e5f607","started"]}
//	{"end":{"rows":1,"ms":2,"truncated":false}}
//
// truncated says that there was more than max_rows, or than the server sends.
// An error before the first line is an HTTP error; a later one is the last line:
//
//	{"error":{"code":"timeout","message":"the statement took longer than 5s"}}
//
// A stream without an end or error line was cut off.
//
// Values: NULL is null; an INTEGER is a number without fraction and exact to 64
// bits; a REAL always has a fraction or exponent, and an infinite one is the
// string "Inf" or "-Inf"; TEXT is a string, its invalid UTF-8 replaced; a BLOB is
// {"blob":"<base64>"}. Parameters are read the same way, and true and false are
// 1 and 0.
//
//	POST /v1/view/subscriptions
//	{"statement": "SELECT id, state FROM machines", "params": [], "key": ["id"]}
//
// 201, Location: /v1/view/subscriptions/{id}, Bourse-Subscription-Id: {id}, and
// the lines
//
//	{"columns":["id","state"]}
//	{"row":[1,["a1b2c3d4e5f607","started"]]}
//	{"end":{"change":4}}
//	{"change":[5,"update",1,["a1b2c3d4e5f607","stopped"]]}
//	{"change":[6,"insert",2,["a1b2c3d4e5f608","created"]]}
//	{"change":[7,"delete",2,["a1b2c3d4e5f608","created"]]}
//
// The number before the values is the row's, for as long as it is in the
// result. The rows are the result as it was after the change in the end line;
// each later line is the next change, numbered without gaps. A delete tells the
// values that the row had last. A result is a set: its order is not told.
//
// key names the columns by which a changed row is recognised; without it that is
// the column "id", else "name", else all columns together, and then there
// are no updates. Rows of one key are told apart by their order.
//
//	GET /v1/view/subscriptions/{id}?from=5
//
// resumes: the columns, then the changes after number 5. Without from it begins
// with the rows. not_found: the subscription has ended (a minute after its last
// reader left), or does not reach back so far: subscribe again. The last line
// of a stream that the server ends is an error line: with unavailable, the
// reader was too slow or the server stops, and it may resume; with any other
// code the subscription itself has ended.

// TypeLines is the content type of the replies.
const TypeLines = "application/x-ndjson"

// HeaderSubscription carries a new subscription's id.
const HeaderSubscription = "Bourse-Subscription-Id"

// Line is one line of a reply: exactly one field is set. It is what a client
// decodes; the server writes its lines by hand.
type Line struct {
	Columns []string `json:"columns,omitempty"`
	Row     []any    `json:"row,omitempty"`    // of a subscription: its number, and the values
	Change  []any    `json:"change,omitempty"` // number, insert|update|delete, the row's number, and its values
	End     *End     `json:"end,omitempty"`
	Error   *Failure `json:"error,omitempty"`
}

// End ends a query, or the rows with which a subscription begins.
type End struct {
	Rows      int   `json:"rows"`
	MS        int64 `json:"ms"`
	Truncated bool  `json:"truncated"`
	Change    int64 `json:"change"` // subscriptions only, and then alone
}

// Failure is an error that came after the first line.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// What a change did.
const (
	opInsert = "insert"
	opUpdate = "update"
	opDelete = "delete"
)
