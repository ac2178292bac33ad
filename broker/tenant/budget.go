package tenant

import (
	"bytes"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
)

// mostHeld bounds what all requests together hold of what proxies say, in bytes: as it
// came, and as it was decoded.
const mostHeld = 128 << 20

// budget is what is held. The zero value holds nothing.
type budget struct {
	mu   sync.Mutex
	held int64
}

// share is what one request holds of a budget. It is safe for concurrent use.
type share struct {
	of   *budget
	held int64 // guarded by of.mu
}

// take holds n bytes more until release. Codes: rate_limited.
func (s *share) take(n int64) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.held+n > mostHeld {
		return bourse.Errorf(bourse.CodeRateLimited, "this broker holds as much as it may of what proxies say: repeat it later, or ask about one app")
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

// counting takes what is read from a share.
type counting struct {
	io.Reader
	taken *share
}

// Read implements io.Reader. Codes: rate_limited.
func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if short := c.taken.take(int64(n)); short != nil {
		return 0, short
	}
	return n, err
}

// What JSON becomes, in bytes: {} is a machine in memory, and a comma is followed by a
// string, at least.
const (
	objectSize = 256
	valueSize  = 16
)

// decoded returns how much memory a text's values take, at most, beside the text.
func decoded(raw []byte) int64 {
	return int64(bytes.Count(raw, []byte{'{'}))*objectSize + int64(bytes.Count(raw, []byte{','}))*valueSize
}
