package broker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/bodies"
	"github.com/bourse-dev/bourse/machinesapi"
)

// request is an HTTP request with what the broker knows of it.
type request struct {
	*http.Request
	id  string      // in the reply and the log
	who Identity    // set once authorised
	of  *bourse.App // the path's app, of a caller who may not use every app
}

func (r *request) app() bourse.AppName { return bourse.AppName(r.PathValue("app")) }

// reaches reports whether the request's caller may have a record by its id: one
// of the path's app. A caller who may use every app also reaches what a former
// app of that name has left behind.
func (r *request) reaches(of owner) bool {
	if r.of != nil {
		return r.of.Owns(of.app, of.id, of.made)
	}
	return of.app == r.app()
}

// endpoint serves one route: it names the request, authorises it, turns its
// error or panic into a reply and logs it.
func (b *Broker) endpoint(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := b.Now()
		req := &request{Request: r, id: ulid.Make().String() + "-" + string(b.Region)}
		rec := &recorder{ResponseWriter: w}
		w.Header().Set(machinesapi.HeaderRequestID, req.id)
		fabric.Unbounded(w, r)
		err := b.guarded(rt, rec, req)
		if err != nil && rec.status == 0 {
			b.writeError(rec, req, err)
		}
		b.logRequest(rt, req, rec.status, b.Now().Sub(began), err)
		if err != nil && rec.status < 300 {
			panic(http.ErrAbortHandler) // half a reply is out: the caller must see that it ends here
		}
	})
}

// guarded authorises and serves. A panic becomes an internal error: the
// request fails, the process goes on.
func (b *Broker) guarded(rt route, w http.ResponseWriter, r *request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &bourse.Error{Code: bourse.CodeInternal, Message: "internal error", Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	if err := b.authorise(rt.needs, r); err != nil {
		return err
	}
	if !early(rt.pattern) {
		if err := b.ready(); err != nil {
			return err
		}
	}
	return rt.serve(b, w, r)
}

// logRequest writes one line for a request that changes something, and for any
// that failed by our fault.
func (b *Broker) logRequest(rt route, r *request, status int, took time.Duration, err error) {
	level := slog.LevelInfo
	switch {
	case bourse.CodeOf(err) == bourse.CodeInternal:
		level = slog.LevelError
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		level = slog.LevelDebug
	}
	if !b.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", r.id), slog.String("endpoint", rt.pattern), slog.Int("status", status), slog.Duration("took", took),
	}
	for _, name := range []string{"app", "machine", "volume", "worker", "order", "run", "reservation"} {
		if v := r.PathValue(name); v != "" {
			attrs = append(attrs, slog.String(name, v))
		}
	}
	if r.who.Name != "" {
		attrs = append(attrs, slog.String("who", r.who.Name))
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(bourse.CodeOf(err))), slog.Any("err", err))
	}
	b.Log.LogAttrs(r.Context(), level, "request", attrs...)
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

// writeJSON sends a reply. A caller that has left is no error of the request; a
// reply that is too long is one, and nothing of it is sent.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the reply: %w", err)
	}
	if len(raw) > maxReply {
		return bourse.Errorf(bourse.CodeInvalid, "the reply has %d bytes, at most %d: ask for less at a time", len(raw), maxReply)
	}
	release, err := bodies.Reserve(w, len(raw))
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	bodies.Write(w, append(raw, '\n'))
	return nil
}

// writeOK sends {"ok":true}.
func writeOK(w http.ResponseWriter) error {
	return writeJSON(w, http.StatusOK, machinesapi.OK{OK: true})
}
