package direct

import (
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// headerTo is the header that names the worker to which a request is addressed.
const headerTo = "Bourse-To"

// Handler returns a handler that passes requests for the worker with the given ID to h. Requests addressed to another
// worker get a 421. The handler also passes to h any request that does not name a worker, such as a request from a
// user, and any call on a connection upgraded by [Serve].
func Handler(id bourse.WorkerID, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.Header[headerTo]; len(to) > 0 && to[0] != string(id) {
			w = misdirected{w}
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeUnavailable, "this is worker %s, not %s", id, bourse.Quoted(to[0])))
			return
		}
		if asksForCalls(r) {
			serveCalls(w, r, h)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// misdirected is a ResponseWriter that replaces every status with 421.
type misdirected struct{ http.ResponseWriter }

func (m misdirected) WriteHeader(int) {
	m.ResponseWriter.WriteHeader(http.StatusMisdirectedRequest)
}

// Unwrap supports http.ResponseController.
func (m misdirected) Unwrap() http.ResponseWriter { return m.ResponseWriter }
