package machinesapi

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Limits for retries after a server was overloaded.
const (
	defaultRetries = 3
	maxRetryAfter  = 10 * time.Second
)

// repeatable reports whether the request can be sent again: the server must have refused it without executing it, and
// its body must not be a stream.
func repeatable(resp *http.Response, k call) bool {
	return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" && k.body == nil
}

// waitToRetry waits for the duration in the reply's Retry-After header (at most maxRetryAfter), plus a
// random delay of up to half of that duration, so that clients do not all retry at the same time.
func waitToRetry(ctx context.Context, resp *http.Response) error {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		seconds = 1
	}
	wait := min(time.Duration(min(seconds, 60))*time.Second, maxRetryAfter)
	if wait > 0 {
		wait += rand.N(wait / 2)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
