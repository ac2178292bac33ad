package throttle

import (
	"net/http"
	"time"
)

const (
	// chunkSize is the size in bytes of the chunks in which a large reply is written.
	chunkSize = 64 << 10
	// writeTimeout is how long the client may take to read a chunk.
	writeTimeout = 30 * time.Second
)

// WriteReply writes the body of a complete reply. If the client stops reading, WriteReply gives up.
// The client then gets a broken connection instead of the end of the reply.
func WriteReply(w http.ResponseWriter, whole []byte) {
	if len(whole) <= chunkSize { // the kernel buffers such a reply
		_, _ = w.Write(whole)
		return
	}
	control := http.NewResponseController(w)
	for len(whole) > 0 {
		n := min(chunkSize, len(whole))
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // some writers do not support deadlines
		if _, err := w.Write(whole[:n]); err != nil {
			return
		}
		whole = whole[n:]
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // for data that has not been flushed yet
	if control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	}
}
