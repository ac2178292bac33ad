package throttle

import (
	"net/http"
	"time"
)

const (
	// piece is what is written at a time of a large reply.
	piece = 64 << 10
	// stall is how long a caller may read nothing of it.
	stall = 30 * time.Second
)

// WriteReply writes the body of a complete reply, and gives up when
// its caller stops reading. The caller then sees a broken connection, never
// the end of the reply.
func WriteReply(w http.ResponseWriter, whole []byte) {
	if len(whole) <= piece { // the kernel buffers it
		_, _ = w.Write(whole)
		return
	}
	control := http.NewResponseController(w)
	for len(whole) > 0 {
		n := min(piece, len(whole))
		_ = control.SetWriteDeadline(time.Now().Add(stall)) // not every writer can
		if _, err := w.Write(whole[:n]); err != nil {
			return
		}
		whole = whole[n:]
	}
	_ = control.SetWriteDeadline(time.Now().Add(stall)) // for what is still to be flushed
	if control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	}
}
