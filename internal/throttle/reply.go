package throttle

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// replier is the writer of a listener with limits.
type replier struct {
	http.ResponseWriter
	limits *Bodies
}

// Unwrap lets http.ResponseController find what is below.
func (r *replier) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// ReserveReply takes space in the budget for a complete reply of size bytes, until
// release is called: a client that does not read the reply holds the space for as long as
// [WriteReply] lets it. It is called before anything of the reply is written. Small
// replies take none, and one of any size always fits. Codes:
// rate_limited.
func ReserveReply(w http.ResponseWriter, size int) (release func(), err error) {
	r := replierOf(w)
	if r == nil || size <= piece {
		return func() {}, nil
	}
	n := int64(size)
	if !r.limits.replies.takeOne(n) {
		return nil, bourse.Errorf(bourse.CodeRateLimited, "too many large replies wait for clients to read them: repeat this later")
	}
	return func() { r.limits.replies.put(n) }, nil
}

// replierOf finds the writer of the listener below w, nil where it has no
// limits.
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
