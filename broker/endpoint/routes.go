package endpoint

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Handler serves one endpoint.
type Handler func(http.ResponseWriter, *Request) error

// Route is one endpoint: its pattern, who may call it, and what serves it.
type Route struct {
	Pattern string
	Needs   Scope
	Serve   Handler
	Narrow  bool // it shows a token of machines no others
	About   About
}

// On makes a route.
func On(pattern string, needs Scope, serve Handler) Route {
	return Route{Pattern: pattern, Needs: needs, Serve: serve}
}

// ForMachines is On for an endpoint that shows a token of machines those alone.
func ForMachines(pattern string, needs Scope, serve Handler) Route {
	return Route{Pattern: pattern, Needs: needs, Serve: serve, Narrow: true}
}

// Paths that several routes begin with.
const (
	OneApp      = "/v1/apps/{app}"
	AllMachines = OneApp + "/machines"
	OneMachine  = AllMachines + "/{machine}"
	AllVolumes  = OneApp + "/volumes"
	OneVolume   = AllVolumes + "/{volume}"
	OneWorker   = "/v1/workers/{worker}"

	OneReservation = "/v1/reservations/{reservation}"
)

// Routed puts routes into a mux, with JSON for what it does not know. A slash at
// the end of a path changes nothing: it is removed before the path is matched, so
// that the endpoint, the authorization and the log all see the same path.
func (s *Server) Routed(routes []Route) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.Handle(rt.Pattern, s.endpoint(rt))
	}
	mux.Handle(anyPath, s.endpoint(On(anyPath, Anyone, func(w http.ResponseWriter, r *Request) error {
		if why := s.Declined(r.Request); why != "" {
			return bourse.Errorf(bourse.CodeNotFound, "%s %s is not offered: %s", r.Method, bourse.Quoted(r.URL.Path), why)
		}
		return unknownPath(mux, w, r)
	})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, withoutSlash(r))
	})
}

// withoutSlash returns r without the slash at the end of its path. An encoded
// slash (%2F) is part of a name and stays.
func withoutSlash(r *http.Request) *http.Request {
	if p := r.URL.EscapedPath(); len(p) < 2 || !strings.HasSuffix(p, "/") {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	out := *r
	out.URL = &u
	return &out
}

const anyPath = "/"

// unknownPath distinguishes a path that exists under other methods from one that
// does not.
func unknownPath(mux *http.ServeMux, w http.ResponseWriter, r *Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(&other); pattern != anyPath && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return bourse.Errorf(bourse.CodeNotFound, "no such endpoint: %s %s", r.Method, bourse.Quoted(r.URL.Path))
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return &Reply{Status: http.StatusMethodNotAllowed, Err: bourse.Errorf(bourse.CodeInvalid,
		"%s is not for %s: use %s", bourse.Quoted(r.URL.Path), r.Method, strings.Join(allowed, ", "))}
}
