package registrytest

import (
	"net/http"
	"strings"
	"time"
)

// Fault describes how to tamper with one reply. The zero value leaves the reply unchanged.
type Fault struct {
	Status  int    // replace the reply with an empty reply that has this status
	Body    []byte // replace the body of the reply
	Corrupt bool   // invert the body's first byte
	Rate    int64  // limit the body to this many bytes per second

	// Hang stops the reply after the first After bytes of the body, but keeps the connection open. Cut breaks the
	// connection at that point. If After is 0, the headers are not sent either.
	Hang, Cut bool
	After     int64
}

// Stats counts the requests to a registry, except those sent by [Registry.Push].
type Stats struct {
	Requests  int   // number of requests
	Manifests int   // number of GET and HEAD requests for manifests
	Blobs     int   // number of GET requests for blobs
	Ranges    int   // number of GET requests for a range of a blob
	BlobBytes int64 // number of bytes of blobs that were sent
}

// IsManifest reports whether a request is for a manifest.
func IsManifest(req *http.Request) bool { return strings.Contains(req.URL.Path, "/manifests/") }

// IsBlob reports whether a request is for a layer or a configuration.
func IsBlob(req *http.Request) bool { return strings.Contains(req.URL.Path, "/blobs/sha256:") }

// Fault sets the function that chooses the fault of each reply; nil disables faults. f must be safe for concurrent use.
func (r *Registry) Fault(f func(*http.Request) Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Stats returns the counts since the registry was started or ResetStats was last called.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// ResetStats resets the counters.
func (r *Registry) ResetStats() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats = Stats{}
}

// ServeHTTP passes a request to the registry and applies the fault to its reply.
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
		_, _ = body.Write(fault.Body) // fails if the client disconnects
	case (fault.Hang || fault.Cut) && fault.After == 0:
		body.stop()
	default:
		r.app.ServeHTTP(body, req)
	}
}

// body is a ResponseWriter that applies a fault to the reply.
type body struct {
	http.ResponseWriter
	registry *Registry
	req      *http.Request
	fault    Fault
	ended    <-chan struct{}
	sent     int64
}

// Write writes p with the fault applied.
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

// wait waits for d. It returns early if the client disconnects or the registry stops.
func (b *body) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.req.Context().Done():
	case <-b.ended:
	}
}

// stop breaks the connection. For Hang, it first waits until the client disconnects or the
// registry stops.
func (b *body) stop() {
	if b.sent > 0 {
		_ = http.NewResponseController(b.ResponseWriter).Flush() // fails if the client has disconnected
	}
	if b.fault.Hang {
		select {
		case <-b.req.Context().Done():
		case <-b.ended:
		}
	}
	panic(http.ErrAbortHandler)
}
