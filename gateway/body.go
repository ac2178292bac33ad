package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// maxBody is the maximum size of a request's body in bytes.
const maxBody = fabric.MaxBody

// readBody decodes the JSON body of a request into v. Errors: invalid.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	var body bytes.Buffer
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return throttle.BodyError(err)
	}
	err := throttle.DecodeBody(r, body.Len(), func() error { return json.Unmarshal(body.Bytes(), v) })
	switch {
	case err == nil:
		return nil
	case bourse.CodeOf(err) == bourse.CodeInternal: // an error from encoding/json, which has no code
		return bourse.Errorf(bourse.CodeInvalid, "decode the body: %w", err)
	default:
		return err
	}
}

// writeBody replies with v as JSON.
func writeBody(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// writeFailure replies with an error.
func writeFailure(w http.ResponseWriter, err error) {
	f := fabric.FailureOf(err)
	write(w, f.Code.Status(), f)
}

func write(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"code":"internal","message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	throttle.WriteReply(w, append(text, '\n'))
}
