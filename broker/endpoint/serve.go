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

// Request is an HTTP request with what the broker knows of it.
type Request struct {
	*http.Request
	ID  string      // in the reply and the log
	Who Identity    // set once authorised
	Of  *bourse.App // the path's app, of a caller who may not use every app

	notes []slog.Attr // what the log says of it beside the rest
}

// Note has the request's line in the log say more: which thing was made.
func (r *Request) Note(attrs ...slog.Attr) { r.notes = append(r.notes, attrs...) }

// App returns the name of the path's app.
func (r *Request) App() bourse.AppName { return bourse.AppName(r.PathValue("app")) }

// Reaches reports whether the request's caller may have a record by its id: one
// of the path's app. A caller who may use every app also Reaches what a former
// app of that name has left behind.
func (r *Request) Reaches(of lookup.Owner) bool {
	if r.Of != nil {
		return r.Of.Owns(of.App, of.ID, of.Made)
	}
	return of.App == r.App()
}

// Server is what every request goes through.
type Server struct {
	Gate     *Gate
	Ready    func() error               // says why nothing is served yet but health, metrics and the view
	Declined func(*http.Request) string // says why a call is not offered that clients know; "" of any other
	Counts   *Counts
	Region   bourse.Region // shown in request ids
	Now      func() time.Time
	Log      *slog.Logger
}

// endpoint serves one route: it names the request, authorises it, turns its
// error or panic into a reply and logs it.
func (s *Server) endpoint(rt Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.Now()
		req := &Request{Request: r, ID: ulid.Make().String() + "-" + string(s.Region)}
		rec := &recorder{ResponseWriter: w}
		w.Header().Set(machinesapi.HeaderRequestID, req.ID)
		fabric.Unbounded(w, r)
		s.Counts.Began(rt.Pattern)
		err := s.guarded(rt, rec, req)
		if err != nil && rec.status == 0 {
			writeError(rec, req, err)
		}
		took := s.Now().Sub(began)
		s.Counts.Ended(rt.Pattern, rec.status, took)
		s.logRequest(rt, req, rec.status, took, err)
		if err != nil && rec.status < 300 {
			panic(http.ErrAbortHandler) // half a reply is out: the caller must see that it ends here
		}
	})
}

// guarded authorises and serves. A panic becomes an internal error: the
// request fails, the process goes on.
func (s *Server) guarded(rt Route, w http.ResponseWriter, r *Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &bourse.Error{Code: bourse.CodeInternal, Message: "internal error", Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	if err := s.Gate.Authorise(&rt, r); err != nil {
		return err
	}
	if r.Who.Org != "" {
		throttle.BodyFor(r.Request, "organization "+r.Who.Org)
	}
	if !early(rt.Pattern) {
		if err := s.Ready(); err != nil {
			return err
		}
	}
	return rt.Serve(w, r)
}

// logRequest writes one line for a request that changes something, done or refused,
// and for any that failed by our fault. The lines of changes say audit=true: who did
// what to which thing, from where, and how it ended. None has a token in it, or a
// body.
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

// maxLogged bounds what a line says of one part of a path, in bytes. No name or id is
// longer.
const maxLogged = 128

// outcome says how a change ended, by the status of its reply.
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

// recorder remembers the status that was sent; 0 means none yet.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write sends 200 first when no status was sent.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// maxReply bounds a reply that is made as a whole, in bytes.
const maxReply = 256 << 20

// WriteJSON sends a reply. A caller that has left is no error of the request; a
// reply that is too long is one, and nothing of it is sent.
func WriteJSON(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the reply: %w", err)
	}
	if len(raw) > maxReply {
		return bourse.Errorf(bourse.CodeInvalid, "the reply has %d bytes, at most %d: ask for less at a time", len(raw), maxReply)
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

// WriteOK sends {"ok":true}.
func WriteOK(w http.ResponseWriter) error {
	return WriteJSON(w, http.StatusOK, machinesapi.OK{OK: true})
}

// ShowSilent names the workers whose part is missing in the reply.
func ShowSilent(r interface{ Set(key, value string) }, ids []bourse.WorkerID) {
	if len(ids) == 0 {
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	r.Set(machinesapi.HeaderUnreachable, strings.Join(names, ","))
}

// early reports whether an endpoint serves before the broker knows its cluster:
// it says only what this server is and has.
func early(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return pattern == anyPath || path == "/v1/health" || path == "/metrics" || path == "/openapi.json" || strings.HasPrefix(path, "/v1/view/")
}
