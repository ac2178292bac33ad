package endpoint

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Handler serves one endpoint.
type Handler func(http.ResponseWriter, *Request) error

// Route describes one endpoint: its pattern, the permission that it requires, and its handler.
type Route struct {
	Pattern string
	Needs   Scope
	Serve   Handler
	Narrow  bool // machine tokens may use the endpoint, which must then return only the token's machines
	About   About
}

// On returns a Route with the given pattern, required permission and handler.
func On(pattern string, needs Scope, serve Handler) Route {
	return Route{Pattern: pattern, Needs: needs, Serve: serve}
}

// ForMachines is like On, but for an endpoint that also accepts machine tokens. For a caller with such a token, the
// handler must return only the token's machines.
func ForMachines(pattern string, needs Scope, serve Handler) Route {
	return Route{Pattern: pattern, Needs: needs, Serve: serve, Narrow: true}
}

// Prefixes of routes' paths.
const (
	OneApp      = "/v1/apps/{app}"
	AllMachines = OneApp + "/machines"
	OneMachine  = AllMachines + "/{machine}"
	AllVolumes  = OneApp + "/volumes"
	OneVolume   = AllVolumes + "/{volume}"
	OneWorker   = "/v1/workers/{worker}"

	OneReservation = "/v1/reservations/{reservation}"
)

// Routed returns a handler that serves the routes and responds to unknown paths with JSON errors. It removes a trailing
// slash from the path before matching, so that routing, authorization and logging all use the same path.
func (s *Server) Routed(routes []Route) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.Handle(rt.Pattern, s.endpoint(rt))
	}
	mux.Handle(anyPath, s.endpoint(On(anyPath, Anyone, func(w http.ResponseWriter, r *Request) error {
		if why := s.Unsupported(r.Request); why != "" {
			return bourse.Errorf(bourse.CodeNotFound, "%s %s is not supported: %s", r.Method, bourse.Quoted(r.URL.Path), why)
		}
		return unknownPath(mux, w, r)
	})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, withoutSlash(r))
	})
}

// withoutSlash returns r without the slash at the end of its path. An encoded slash (%2F) is part
// of a name, so it is kept.
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

// unknownPath returns the error for a request whose path matches no route, or only routes for other methods.
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
		"%s does not support %s: use %s", bourse.Quoted(r.URL.Path), r.Method, strings.Join(allowed, ", "))}
}
