package fsm

import (
	"crypto/rand"
	"time"

	"github.com/oklog/ulid/v2"
)

// idSource creates strictly increasing ULIDs, even if the clock is set back.
type idSource struct {
	ms      uint64
	entropy *ulid.MonotonicEntropy
}

// advancePast ensures that ids created later are greater than id.
func (s *idSource) advancePast(id string) {
	if u, err := ulid.ParseStrict(id); err == nil {
		s.ms = max(s.ms, u.Time()+1)
	}
}

func (s *idSource) next(now time.Time) string {
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	s.ms = max(s.ms, uint64(max(0, now.UnixMilli())))
	id, err := ulid.New(s.ms, s.entropy)
	if err != nil { // this millisecond has no ids left
		s.ms++
		id = ulid.MustNew(s.ms, s.entropy)
	}
	return id.String()
}
