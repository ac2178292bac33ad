package registrytest

import (
	"net/http"
	"strings"
	"time"
)

// Fault is what goes wrong with one answer; the zero value is nothing.
type Fault struct {
	Status  int    // answers with this status and nothing else
	Body    []byte // answers every request with this
	Corrupt bool   // turns the body's first byte over
	Rate    int64  // bytes of the body in a second

	// Hang stops, and holds the connection, after After bytes of the body; Cut
	// breaks the connection there. A hanging answer without a body (After 0)
	// does not even send its headers.
	Hang, Cut bool
	After     int64
}

// Stats counts what was asked of a registry by its clients; pushes through
// Push are not in it.
type Stats struct {
	Requests  int   // all of them
	Manifests int   // asked for by GET or HEAD
	Blobs     int   // GETs of blobs
	Ranges    int   // those of them that asked for a part
	BlobBytes int64 // bytes of blobs that were sent
}

// IsManifest reports whether a request asks for a manifest.
func IsManifest(req *http.Request) bool { return strings.Contains(req.URL.Path, "/manifests/") }

// IsBlob reports whether a request asks for a layer or a configuration.
func IsBlob(req *http.Request) bool { return strings.Contains(req.URL.Path, "/blobs/sha256:") }

// Fault has f asked for each request what is to go wrong with its answer; nil
// ends it. f may be called by several goroutines at once.
func (r *Registry) Fault(f func(*http.Request) Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Stats counts the requests since the start, or since ResetStats.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// ResetStats counts from nothing again.
func (r *Registry) ResetStats() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats = Stats{}
}

// ServeHTTP answers as the registry does, with the faults asked for.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	ask, ended := r.fault, r.ended
	r.stats.Requests++
	switch {
	case IsManifest(req):
		r.stats.Manifests++
	case IsBlob(req) && req.Method == http.MethodGet:
		r.stats.Blobs++
		if req.Header.Get("Range") != "" {
			r.stats.Ranges++
		}
	}
	r.mu.Unlock()
	var fault Fault
	if ask != nil {
		fault = ask(req)
	}
	body := &body{ResponseWriter: w, registry: r, req: req, fault: fault, ended: ended}
	switch {
	case fault.Status != 0:
		w.WriteHeader(fault.Status)
	case fault.Body != nil:
		_, _ = body.Write(fault.Body) // the client may leave
	case (fault.Hang || fault.Cut) && fault.After == 0:
		body.stop()
	default:
		r.app.ServeHTTP(body, req)
	}
}

// body is the body of an answer, with its faults.
type body struct {
	http.ResponseWriter
	registry *Registry
	req      *http.Request
	fault    Fault
	ended    <-chan struct{}
	sent     int64
}

// Write passes on what the fault leaves of p.
func (b *body) Write(p []byte) (int, error) {
	if b.fault.Corrupt && b.sent == 0 && len(p) > 0 {
		p = append([]byte{^p[0]}, p[1:]...)
	}
	rest := p
	for len(rest) > 0 {
		part := rest
		if b.fault.Rate > 0 {
			part = part[:min(int64(len(part)), max(b.fault.Rate/50, 1))]
			b.wait(time.Second * time.Duration(len(part)) / time.Duration(b.fault.Rate))
		}
		stops := b.fault.Hang || b.fault.Cut
		if stops {
			part = part[:min(int64(len(part)), b.fault.After-b.sent)]
		}
		n, err := b.ResponseWriter.Write(part)
		b.count(n)
		if err != nil {
			return len(p) - len(rest) + n, err
		}
		if rest = rest[n:]; stops && b.sent >= b.fault.After {
			b.stop()
		}
	}
	return len(p), nil
}

func (b *body) count(n int) {
	b.sent += int64(n)
	if IsBlob(b.req) {
		b.registry.mu.Lock()
		b.registry.stats.BlobBytes += int64(n)
		b.registry.mu.Unlock()
	}
}

// wait passes time, less when the client leaves or the registry stops.
func (b *body) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.req.Context().Done():
	case <-b.ended:
	}
}

// stop holds the connection or not, and then breaks it.
func (b *body) stop() {
	if b.sent > 0 {
		_ = http.NewResponseController(b.ResponseWriter).Flush() // the client may have left
	}
	if b.fault.Hang {
		select {
		case <-b.req.Context().Done():
		case <-b.ended:
		}
	}
	panic(http.ErrAbortHandler)
}
