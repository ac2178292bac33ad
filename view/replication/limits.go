package replication

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// limits bounds the number of concurrent requests for each path.
type limits map[string]chan struct{}

func newLimits(l Limits) limits {
	out := limits{}
	for path, n := range map[string]int{
		pathDigest: l.Digests, pathPull: l.Pulls, pathPush: l.Pushes, pathSnapshot: l.Snapshots, pathHealth: l.Healths,
	} {
		out[path] = make(chan struct{}, n)
	}
	return out
}

// limited returns a handler that serves only a limited number of concurrent requests for a path. It
// immediately rejects further ones with status 429, which is cheap.
func (s *server) limited(path string, serve http.HandlerFunc) http.HandlerFunc {
	slots := s.r.limits[path]
	return func(w http.ResponseWriter, req *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			serve(w, req)
		default:
			s.refuseBusy(w)
		}
	}
}

// retryAfterSeconds is the value of the Retry-After header in a response with status 429.
const retryAfterSeconds = 1

// refuseBusy rejects a request with status 429.
func (s *server) refuseBusy(w http.ResponseWriter) {
	s.r.count.shed.Add(1)
	w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	http.Error(w, "overloaded: try again later", http.StatusTooManyRequests)
}

// countReader and countWriter count the bytes that are read and written.
type countReader struct {
	io.Reader
	n *atomic.Uint64
}

func (c countReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(uint64(n))
	return n, err
}

type countWriter struct {
	io.Writer
	n *atomic.Uint64
}

func (c countWriter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(uint64(n))
	return n, err
}
