package machinesapi

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Limits for retries when a server is overloaded.
const (
	defaultRetries = 3
	maxRetryAfter  = 10 * time.Second
)

// repeatable reports whether the server refused the request without executing it and it can be sent again. A streamed
// body cannot.
func repeatable(resp *http.Response, k call) bool {
	return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" && k.body == nil
}

// waitToRetry waits for the duration in a reply's Retry-After, plus up to half of it, so that clients do not all
// return at once.
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
