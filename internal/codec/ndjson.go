package codec

import (
	"encoding/json"
	"net/http"
)

// Type is the content type of newline-delimited JSON.
const Type = "application/x-ndjson"

// Writer writes an HTTP reply of newline-delimited JSON. It flushes each line. The status
// is sent with the first line, so until then the handler may still reply with an error.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool

	Buffered bool // if set, lines are not flushed
}

// NewWriter returns a Writer for a reply.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w)}
}

// Begun reports whether the status has been sent.
func (w *Writer) Begun() bool { return w.begun }

// Begin sends the status if it has not been sent yet. Call it if the first line may take a long
// time.
func (w *Writer) Begin() {
	if w.header() {
		_ = w.control.Flush() // some writers cannot flush; they send the status later
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

// Write sends v as a line. It returns an error if v cannot be encoded or the client has
// disconnected.
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
