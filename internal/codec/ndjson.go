package codec

import (
	"encoding/json"
	"net/http"
)

// Type is the content type of such a reply.
const Type = "application/x-ndjson"

// Writer writes a reply line by line, each sent at once. The status is sent with
// the first, so until then the reply may still become another.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool

	Buffered bool // lines may wait until there are more of them
}

// NewWriter makes the writer of a reply.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w)}
}

// Begun reports whether the status was sent.
func (w *Writer) Begun() bool { return w.begun }

// Begin sends the status, if it was not sent: the first line may be long in
// coming.
func (w *Writer) Begin() {
	if w.header() {
		_ = w.control.Flush() // a writer that cannot flush sends it later
	}
}

func (w *Writer) header() bool {
	if w.begun {
		return false
	}
	w.begun = true
	w.w.Header().Set("Content-Type", Type)
	w.w.WriteHeader(http.StatusOK)
	return true
}

// Write sends v as a line. An error means that the caller is gone.
func (w *Writer) Write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.header()
	if _, err := w.w.Write(append(line, '\n')); err != nil || w.Buffered {
		return err
	}
	return w.control.Flush()
}
