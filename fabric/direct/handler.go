package direct

import (
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// headerTo names the worker that a request is for.
const headerTo = "Bourse-To"

// Handler serves h as the worker with this id: a request for another one gets
// 421 and h does not see it. A request that names no worker, a person's, is
// served. So are calls, on a connection that began with a request for them, where
// [Serve] does.
func Handler(id bourse.WorkerID, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.Header[headerTo]; len(to) > 0 && to[0] != string(id) {
			w = misdirected{w}
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeUnavailable, "this is worker %s, not %s", id, bourse.Quoted(to[0])))
			return
		}
		if asksForCalls(r) {
			takeCalls(w, r, h)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// misdirected answers 421 instead of any code.
type misdirected struct{ http.ResponseWriter }

func (m misdirected) WriteHeader(int) {
	m.ResponseWriter.WriteHeader(http.StatusMisdirectedRequest)
}

// Unwrap is for http.ResponseController.
func (m misdirected) Unwrap() http.ResponseWriter { return m.ResponseWriter }
