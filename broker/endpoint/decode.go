package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// Decode decodes a JSON body into the value that v points to. If optional is set, an empty body leaves the value
// unchanged. Unknown members are ignored and listed in the reply's headers. Errors: invalid.
func Decode(w http.ResponseWriter, r *Request, optional bool, v any) error {
	return decode(w, r, optional, func(raw []byte) error {
		err := unmarshal(raw, v)
		if err == nil {
			Warn(w, workload.Unknown(raw, v)...)
		}
		return err
	})
}

// DecodeTask is like Decode, but for a task's payload. It does not report unknown members, because
// that would require parsing a large payload twice.
func DecodeTask(w http.ResponseWriter, r *Request, v any) error {
	return decode(w, r, false, func(raw []byte) error { return unmarshal(raw, v) })
}

// Warn adds the warnings to the reply's headers.
func Warn(w http.ResponseWriter, warnings ...bourse.Warning) {
	for _, warning := range warnings {
		w.Header().Add(machinesapi.HeaderWarning, warning.String())
	}
}

func decode(w http.ResponseWriter, r *Request, optional bool, read func(raw []byte) error) error {
	raw, err := readBody(w, r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		if optional {
			return nil
		}
		return bourse.Errorf(bourse.CodeInvalid, "the request has no body: send JSON")
	}
	return throttle.DecodeBody(r.Request, len(raw), func() error { return read(raw) })
}

// unmarshal decodes JSON. If that fails, it returns CodeInvalid with a description of the problem.
func unmarshal(raw []byte, into any) error {
	if !utf8.Valid(raw) { // the decoder would silently replace invalid characters
		return bourse.Errorf(bourse.CodeInvalid, "the body is not UTF-8")
	}
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "invalid " + fieldName(e.Field) + ": a JSON " + e.Value + " does not fit", Err: err}
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return bourse.Errorf(bourse.CodeInvalid, "the body is not JSON: byte %d: %w", e.Offset, err)
	}
	return bourse.Errorf(bourse.CodeInvalid, "read the body: %w", err)
}

func fieldName(field string) string {
	if field == "" {
		return "body"
	}
	return field
}

// initialBuffer is the maximum initial size, in bytes, of the buffer for a request body.
const initialBuffer = 4 << 10

// readBody reads the request's body, of at most machinesapi.MaxBody bytes. Errors: invalid.
func readBody(w http.ResponseWriter, r *Request) ([]byte, error) {
	tooLong := &Reply{Status: http.StatusRequestEntityTooLarge, Err: bourse.Errorf(bourse.CodeInvalid, "the body is too long: the maximum is %d bytes", machinesapi.MaxBody)}
	if r.ContentLength > machinesapi.MaxBody {
		return nil, tooLong
	}
	var buf bytes.Buffer // grows as data is received; the declared length is not allocated in advance
	if n := r.ContentLength; n > 0 {
		buf.Grow(int(min(n, initialBuffer)) + bytes.MinRead) // the extra MinRead bytes keep ReadFrom from growing the buffer at the end of the body
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, machinesapi.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLong
	}
	if err != nil {
		return nil, throttle.BodyError(err)
	}
	return buf.Bytes(), nil
}

// QueryBool returns a boolean query parameter. A missing parameter is false, and a parameter
// without a value is true.
func QueryBool(r *Request, name string) (bool, error) {
	values, ok := r.URL.Query()[name]
	if !ok {
		return false, nil
	}
	if values[0] == "" {
		return true, nil
	}
	v, err := strconv.ParseBool(values[0])
	if err != nil {
		return false, bourse.Errorf(bourse.CodeInvalid, "invalid %s %s: use true or false", name, bourse.Quoted(values[0]))
	}
	return v, nil
}

// QueryInt returns an integer query parameter, or 0 if it is missing.
func QueryInt(r *Request, name string) (int, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid %s %s: use a whole number", name, bourse.Quoted(s))
	}
	return n, nil
}

// QueryTimeout decodes the timeout query parameter, which is a number of seconds or a Go duration. If the parameter is
// missing, QueryTimeout returns 0. A negative value is invalid. A value above limit is reduced to limit.
func QueryTimeout(r *Request, limit time.Duration) (time.Duration, error) {
	s := r.URL.Query().Get("timeout")
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, e := strconv.ParseInt(s, 10, 64); e == nil {
		d, err = time.Duration(min(n, int64(limit/time.Second)))*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %s: use seconds or a duration such as 15s", bourse.Quoted(s))
	}
	return min(d, limit), nil
}
