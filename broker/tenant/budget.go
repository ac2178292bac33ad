package tenant

import (
	"bytes"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxHeld limits the total memory, in bytes, that concurrent requests use for proxies' replies, both encoded and
// decoded.
const maxHeld = 128 << 20

// budget limits the memory that all concurrent requests use for replies. The zero value is ready to use.
type budget struct {
	mu   sync.Mutex
	used int64
}

// share is the part of a budget that a single request uses. It is safe for concurrent use.
type share struct {
	of   *budget
	used int64 // in bytes; guarded by of.mu
}

// take reserves n more bytes, which remain reserved until release is called. Errors: rate_limited.
func (s *share) take(n int64) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.used+n > maxHeld {
		return bourse.Errorf(bourse.CodeRateLimited, "too many replies from proxies are being processed: try again later, or request a single app")
	}
	s.of.used += n
	s.used += n
	return nil
}

func (s *share) release() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.used -= s.used
	s.used = 0
}

// countingReader reserves memory from a share for the bytes that are read.
type countingReader struct {
	io.Reader
	taken *share
}

// Read implements io.Reader. Errors: rate_limited.
func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if short := c.taken.take(int64(n)); short != nil {
		return 0, short
	}
	return n, err
}

// Estimates of the memory needed by decoded JSON, in bytes. objectSize is the estimate for each object; no struct in a
// reply is larger. valueSize, the size of a string, is added for each comma, which separates two values.
const (
	objectSize = 256
	valueSize  = 16
)

// decoded returns an upper bound on the memory needed by the values decoded from raw. It does not
// include raw itself.
func decoded(raw []byte) int64 {
	return int64(bytes.Count(raw, []byte{'{'}))*objectSize + int64(bytes.Count(raw, []byte{','}))*valueSize
}
