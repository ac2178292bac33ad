package tenant

import (
	"bytes"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxHeld limits the memory for proxies' replies in all requests, in bytes, both encoded and decoded.
const maxHeld = 128 << 20

// budget limits memory. The zero value is unused.
type budget struct {
	mu   sync.Mutex
	held int64
}

// share is one request's part of a budget. It is safe for concurrent use.
type share struct {
	of   *budget
	held int64 // guarded by of.mu
}

// take reserves n more bytes until release. Errors: rate_limited.
func (s *share) take(n int64) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.held+n > maxHeld {
		return bourse.Errorf(bourse.CodeRateLimited, "too many replies of proxies are being processed: try again later, or request a single app")
	}
	s.of.held += n
	s.held += n
	return nil
}

func (s *share) release() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.held -= s.held
	s.held = 0
}

// countingReader charges the bytes that are read to a share.
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

// Estimates of the memory for decoded JSON, in bytes: each object is at least as large as a machine, and each comma
// precedes at least a string.
const (
	objectSize = 256
	valueSize  = 16
)

// decoded returns an upper bound on the memory for a text's decoded values, in addition to the text.
func decoded(raw []byte) int64 {
	return int64(bytes.Count(raw, []byte{'{'}))*objectSize + int64(bytes.Count(raw, []byte{','}))*valueSize
}
