package endpoint

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Request is an HTTP request with data that the broker adds.
type Request struct {
	*http.Request
	ID  string      // the ID sent in the reply and logged
	Who Identity    // the caller; set once the request is authorized
	Of  *bourse.App // the app in the path, if the caller may not use every app

	notes []slog.Attr // additional attributes for the log
}

// Note adds an attribute to the request's log entry, such as the ID of a created object.
func (r *Request) Note(attrs ...slog.Attr) { r.notes = append(r.notes, attrs...) }

// App returns the name of the app in the path.
func (r *Request) App() bourse.AppName { return bourse.AppName(r.PathValue("app")) }

// MayUse reports whether the caller may use a record with the given owner. It returns true only if the owner is the app
// in the request's path. If the caller may use every app, only the app's name has to match, so that the caller can also
// use the records of a deleted app of that name.
func (r *Request) MayUse(of lookup.Owner) bool {
	if r.Of != nil {
		return r.Of.Owns(of.App, of.ID, of.Made)
	}
	return of.App == r.App()
}

// Server serves the routes of the public API.
type Server struct {
	Gate        *Gate
	Ready       func() error               // returns an error until the broker is ready; until then, only the endpoints for which servedBeforeReady returns true are served
	Unsupported func(*http.Request) string // returns why a Machines API call is not supported; otherwise ""
	Counts      *Counts
	Region      bourse.Region // part of request IDs
	Now         func() time.Time
	Log         *slog.Logger
}

// endpoint returns the handler of one route. The handler assigns an ID to the request, authorizes
// it, turns an error or panic into a reply, and logs the request.
func (s *Server) endpoint(rt Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.Now()
		req := &Request{Request: r, ID: ulid.Make().String() + "-" + string(s.Region)}
		rec := &recorder{ResponseWriter: w}
		w.Header().Set(machinesapi.HeaderRequestID, req.ID)
		fabric.PrepareUnboundedReply(w, r)
		s.Counts.Began(rt.Pattern)
		err := s.guarded(rt, rec, req)
		if err != nil && rec.status == 0 {
			writeError(rec, req, err)
		}
		took := s.Now().Sub(began)
		s.Counts.Ended(rt.Pattern, rec.status, took)
		s.logRequest(rt, req, rec.status, took, err)
		if err != nil && rec.status < 300 {
			// Part of the reply has been sent, so break the connection to show that the reply is incomplete.
			panic(http.ErrAbortHandler)
		}
	})
}

// guarded authorizes and serves a request. It converts a panic to an internal error, so that a panic fails only this
// request.
func (s *Server) guarded(rt Route, w http.ResponseWriter, r *Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &bourse.Error{Code: bourse.CodeInternal, Message: "internal error", Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	if err := s.Gate.Authorize(&rt, r); err != nil {
		return err
	}
	if r.Who.Org != "" {
		throttle.BodyFor(r.Request, "organization "+r.Who.Org)
	}
	if !servedBeforeReady(rt.Pattern) {
		if err := s.Ready(); err != nil {
			return err
		}
	}
	return rt.Serve(w, r)
}

// logRequest logs a request: at level error if it failed with an internal error, otherwise at level info if it is a
// change, and at level debug if it is a read. Entries about changes contain audit=true, even if the change was refused.
// They also contain the caller, the operation, the object, the client's address and the outcome. Entries never contain
// tokens or bodies.
func (s *Server) logRequest(rt Route, r *Request, status int, took time.Duration, err error) {
	level := slog.LevelInfo
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case bourse.CodeOf(err) == bourse.CodeInternal:
		level = slog.LevelError
	case reads:
		level = slog.LevelDebug
	}
	if !s.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", r.ID), slog.String("endpoint", rt.Pattern), slog.Int("status", status), slog.Duration("took", took),
	}
	for _, name := range []string{"app", "machine", "volume", "worker", "order", "run", "reservation", "token", "name", "release"} {
		if v := r.PathValue(name); v != "" {
			attrs = append(attrs, slog.String(name, v[:min(len(v), maxLogged)]))
		}
	}
	attrs = append(attrs, r.notes...)
	if r.Who.Name != "" {
		attrs = append(attrs, slog.String("who", r.Who.Name))
	}
	if r.Who.Token != "" {
		attrs = append(attrs, slog.String("with", r.Who.Token))
	}
	if !reads {
		attrs = append(attrs, slog.Bool("audit", true), slog.String("outcome", outcome(status)), slog.String("from", r.RemoteAddr))
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(bourse.CodeOf(err))), slog.Any("err", err))
	}
	s.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// maxLogged is the maximum length of a path segment in the log, in bytes. All names and IDs are
// shorter.
const maxLogged = 128

// outcome returns a change's outcome for the log, based on the status of the reply.
func outcome(status int) string {
	switch {
	case status == http.StatusRequestTimeout || status == 499:
		return "unknown"
	case status >= http.StatusInternalServerError:
		return "failed"
	case status >= http.StatusBadRequest:
		return "refused"
	}
	return "done"
}

// recorder records the status of a reply. Status 0 means that nothing has been sent yet.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer. http.ResponseController needs it to flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// maxReply is the maximum size of a reply that is not a stream, in bytes.
const maxReply = 256 << 20

// WriteJSON writes a JSON reply. It ignores errors that occur because the caller has disconnected.
// If the reply is larger than maxReply, it writes nothing and returns an error.
func WriteJSON(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the reply: %w", err)
	}
	if len(raw) > maxReply {
		return bourse.Errorf(bourse.CodeInvalid, "the reply is %d bytes long, which exceeds the maximum of %d: request fewer items at a time", len(raw), maxReply)
	}
	release, err := throttle.ReserveReply(w, len(raw))
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	throttle.WriteReply(w, append(raw, '\n'))
	return nil
}

// WriteOK writes the reply {"ok":true}.
func WriteOK(w http.ResponseWriter) error {
	return WriteJSON(w, http.StatusOK, machinesapi.OK{OK: true})
}

// ListUnreachable lists, in a header of the reply, the workers whose data is missing from the
// reply.
func ListUnreachable(r interface{ Set(key, value string) }, ids []bourse.WorkerID) {
	if len(ids) == 0 {
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	r.Set(machinesapi.HeaderUnreachable, strings.Join(names, ","))
}

// servedBeforeReady reports whether an endpoint is served even while the broker does not know its cluster. Most of
// these endpoints concern only this server. The join token endpoints are included because a cluster's first broker is
// alone at first, and no other server can join without a join token.
func servedBeforeReady(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return pattern == anyPath || path == "/v1/health" || path == "/metrics" || path == "/openapi.json" ||
		strings.HasPrefix(path, "/v1/view/") || strings.HasPrefix(path, "/v1/join_tokens")
}
