package replication

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// limits are how many requests are served at once, by path.
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

// limited serves requests of one path up to its limit, and answers all others that
// they come again later: what cannot be served now costs next to nothing.
func (s *server) limited(path string, serve http.HandlerFunc) http.HandlerFunc {
	slots := s.r.limits[path]
	return func(w http.ResponseWriter, req *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			serve(w, req)
		default:
			s.shed(w)
		}
	}
}

// restSeconds is how long a caller is asked to stay away.
const restSeconds = 1

// shed answers a request with 429.
func (s *server) shed(w http.ResponseWriter) {
	s.r.count.shed.Add(1)
	w.Header().Set("Retry-After", strconv.Itoa(restSeconds))
	http.Error(w, "enough to do", http.StatusTooManyRequests)
}

// countReader and countWriter count bytes that pass.
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
