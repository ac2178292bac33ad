package throttle

import (
	"net/http"
	"time"
)

const (
	// piece is the size in bytes of the pieces in which a large reply is written.
	piece = 64 << 10
	// stall is the maximum time that the caller may take to read a piece.
	stall = 30 * time.Second
)

// WriteReply writes the body of a complete reply. It gives up if the caller stops
// reading; the caller then sees a broken connection, never the end of the reply.
func WriteReply(w http.ResponseWriter, whole []byte) {
	if len(whole) <= piece { // the kernel buffers such a reply
		_, _ = w.Write(whole)
		return
	}
	control := http.NewResponseController(w)
	for len(whole) > 0 {
		n := min(piece, len(whole))
		_ = control.SetWriteDeadline(time.Now().Add(stall)) // some writers do not support deadlines
		if _, err := w.Write(whole[:n]); err != nil {
			return
		}
		whole = whole[n:]
	}
	_ = control.SetWriteDeadline(time.Now().Add(stall)) // for data that has not been flushed yet
	if control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	}
}
