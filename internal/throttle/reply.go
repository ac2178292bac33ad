package throttle

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// replier wraps the ResponseWriter of a request that [Bodies.Handler] serves.
type replier struct {
	http.ResponseWriter
	limits *Bodies
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (r *replier) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// ReserveReply reserves space in the budget for a complete reply of size bytes, until release is
// called. Call it before writing anything. If the client does not read the reply, the space remains
// reserved until [WriteReply] gives up. Small replies do not need space, and a reply of any size
// fits if no other reply has reserved space. Errors: rate_limited.
func ReserveReply(w http.ResponseWriter, size int) (release func(), err error) {
	r := replierOf(w)
	if r == nil || size <= chunkSize {
		return func() {}, nil
	}
	n := min(int64(size), r.limits.total)
	if !r.limits.replies.TryAcquire(n) {
		return nil, bourse.Errorf(bourse.CodeRateLimited, "too many large replies are waiting for clients to read them: try again later")
	}
	return func() { r.limits.replies.Release(n) }, nil
}

// replierOf returns the replier that w wraps, or nil if [Bodies.Handler] does not serve the
// request.
func replierOf(w http.ResponseWriter) *replier {
	for {
		switch x := w.(type) {
		case *replier:
			return x
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return nil
		}
	}
}
