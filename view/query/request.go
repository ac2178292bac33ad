package query

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// maxBody is the maximum size of a request's body, in bytes.
const maxBody = 1 << 20

// maxKey is the maximum number of columns in a subscription's key.
const maxKey = 16

// Request is the body of a request for a query or subscription. wire.go describes its fields.
type Request struct {
	Statement string          `json:"statement"`
	Params    json.RawMessage `json:"params,omitempty"`
	Key       []string        `json:"key,omitempty"` // used only by subscriptions
	MaxRows   int             `json:"max_rows,omitempty"`
	MaxMS     int64           `json:"max_ms,omitempty"`
}

// request is a validated request.
type request struct {
	statement string
	params    params
	key       []string
	maxRows   int           // 0 means the engine's limit
	maxTime   time.Duration // 0 means the engine's limit
}

// readRequest reads and validates a request's body. Errors: invalid.
func readRequest(w http.ResponseWriter, r *http.Request) (Request, request, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return Request{}, request{}, throttle.BodyError(err)
	}
	return decodeRequest(raw)
}

func decodeRequest(raw []byte) (Request, request, error) {
	var req Request
	if err := json.Unmarshal(raw, &req); err != nil {
		return Request{}, request{}, bourse.Errorf(bourse.CodeInvalid, "the body is not a query: %w", err)
	}
	q := request{statement: req.Statement, key: req.Key, maxRows: req.MaxRows}
	switch {
	case strings.TrimSpace(req.Statement) == "":
		return req, q, bourse.Errorf(bourse.CodeInvalid, "statement is empty")
	case len(req.Statement) > MaxStatement:
		return req, q, bourse.Errorf(bourse.CodeInvalid, "the statement is longer than %d bytes", MaxStatement)
	case strings.ContainsRune(req.Statement, 0):
		return req, q, bourse.Errorf(bourse.CodeInvalid, "the statement contains a zero byte")
	case req.MaxRows < 0 || req.MaxMS < 0:
		return req, q, bourse.Errorf(bourse.CodeInvalid, "max_rows and max_ms cannot be negative")
	case len(req.Key) > maxKey:
		return req, q, bourse.Errorf(bourse.CodeInvalid, "more than %d columns in the key", maxKey)
	}
	if req.MaxMS > 0 {
		q.maxTime = time.Duration(min(req.MaxMS, int64(time.Hour/time.Millisecond))) * time.Millisecond
	}
	var err error
	q.params, err = readParams(req.Params)
	return req, q, err
}
