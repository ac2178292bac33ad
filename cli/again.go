package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Passing reports whether a failure is the connection's or the server's moment,
// and not what was asked for.
func Passing(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeRateLimited:
		return true
	case bourse.CodeTimeout: // of what was asked for, unless it is a proxy's on the way
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		return ok && reply.Status >= http.StatusInternalServerError
	default:
		return false
	}
}

// Backoff is how long to wait until the next try: longer each time. Its zero value
// is for the first.
type Backoff struct{ next time.Duration }

// Bounds of a Backoff.
const (
	backoffFirst = 250 * time.Millisecond
	BackoffMost  = 10 * time.Second
)

// Wait waits for the next try, or returns why ctx has ended. It waits half of its
// time at least, and the rest by chance, so that the clients of a lost server do
// not come back all at once.
func (b *Backoff) Wait(ctx context.Context) error {
	wait := max(b.next, backoffFirst)
	b.next = min(2*wait, BackoffMost)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait/2 + rand.N(wait/2+1)):
		return nil
	}
}

// Reset begins again with short waits. It is called after a try that went well for
// so long.
func (b *Backoff) Reset(lasted time.Duration) {
	if lasted > BackoffMost {
		b.next = 0
	}
}
