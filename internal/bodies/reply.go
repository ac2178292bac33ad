package bodies

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// replier is the writer of a listener with limits.
type replier struct {
	http.ResponseWriter
	limits *Limits
}

// Unwrap lets http.ResponseController find what is below.
func (r *replier) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Reserve takes room for a reply of size bytes that is at hand as a whole, until
// release is called: a client that does not read it holds it for as long as
// [Write] lets it. It is called before anything of the reply is written. Small
// replies take none, and one always has room, whatever its size. Codes:
// rate_limited.
func Reserve(w http.ResponseWriter, size int) (release func(), err error) {
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
