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

// Decode reads a JSON body into into; an empty body leaves it as it is, when
// optional. Members that into has no field for are ignored, and the reply says so
// in a header for each. Codes: invalid.
func Decode(w http.ResponseWriter, r *Request, optional bool, into any) error {
	return decode(w, r, optional, func(raw []byte) error {
		err := unmarshal(raw, into)
		if err == nil {
			Warn(w, workload.Unknown(raw, into)...)
		}
		return err
	})
}

// DecodeTask is Decode for a task's payload, without the warnings: looking for
// unknown members would read a large payload twice.
func DecodeTask(w http.ResponseWriter, r *Request, into any) error {
	return decode(w, r, false, func(raw []byte) error { return unmarshal(raw, into) })
}

// Warn says in the reply's headers which members of the request are not acted on.
func Warn(w http.ResponseWriter, warnings ...bourse.Warning) {
	for _, warning := range warnings {
		w.Header().Add(machinesapi.HeaderWarning, warning.String())
	}
}

func decode(w http.ResponseWriter, r *Request, optional bool, read func(raw []byte) error) error {
	raw, err := ReadBody(w, r)
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

// unmarshal decodes JSON and says in CodeInvalid what is wrong with it.
func unmarshal(raw []byte, into any) error {
	if !utf8.Valid(raw) { // the decoder would write other characters in their place
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
	return bourse.Errorf(bourse.CodeInvalid, "the body cannot be read: %w", err)
}

func fieldName(field string) string {
	if field == "" {
		return "body"
	}
	return field
}

// firstRoom is what a body gets before it has come, in bytes.
const firstRoom = 4 << 10

// ReadBody reads a body of at most machinesapi.MaxBody bytes. Codes: invalid.
func ReadBody(w http.ResponseWriter, r *Request) ([]byte, error) {
	tooLong := &Reply{Status: http.StatusRequestEntityTooLarge, Err: bourse.Errorf(bourse.CodeInvalid, "the body is too long: at most %d bytes", machinesapi.MaxBody)}
	if r.ContentLength > machinesapi.MaxBody {
		return nil, tooLong
	}
	var buf bytes.Buffer // it grows with what comes, not with what is declared
	if n := r.ContentLength; n > 0 {
		buf.Grow(int(min(n, firstRoom)) + bytes.MinRead) // MinRead more keeps ReadFrom from growing it
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

// QueryBool reads a flag of the query: absent is false, present without a
// value is true.
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

// QueryInt reads a whole number of the query, absent is 0.
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

// QueryTimeout reads the query's timeout, seconds or a Go duration; absent is
// 0, negative is invalid, and what is longer than most is cut to it.
func QueryTimeout(r *Request, most time.Duration) (time.Duration, error) {
	s := r.URL.Query().Get("timeout")
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, e := strconv.ParseInt(s, 10, 64); e == nil {
		d, err = time.Duration(min(n, int64(most/time.Second)))*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %s: use seconds or a duration such as 15s", bourse.Quoted(s))
	}
	return min(d, most), nil
}
