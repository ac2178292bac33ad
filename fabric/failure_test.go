package fabric_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// failing responds to every request with err.
func failing(err error) fabrictest.Memory {
	return fabrictest.Serving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fabric.WriteFailure(w, err) }))
}

func facts(t *testing.T, f fabric.Fabric) (bourse.Facts, error) {
	t.Helper()
	return fabric.WorkerFacts.Call(t.Context(), f, w1, struct{}{})
}

// TestFailureBothWays checks, for every code, that the client gets the handler's error.
func TestFailureBothWays(t *testing.T) {
	statuses := map[bourse.Code]int{
		bourse.CodeInvalid: 400, bourse.CodeUnauthorized: 401, bourse.CodeForbidden: 403, bourse.CodeNotFound: 404,
		bourse.CodeAlreadyExists: 409, bourse.CodeConflict: 409, bourse.CodeFailedPrecondition: 412, bourse.CodeInsufficient: 422,
		bourse.CodeRateLimited: 429, bourse.CodeUnavailable: 503, bourse.CodeTimeout: 408, bourse.CodeCanceled: 499, bourse.CodeInternal: 500,
	}
	for _, code := range bourse.Codes() {
		err := bourse.Errorf(code, "machine %s: \"no\" <&> …", "a")
		w := httptest.NewRecorder()
		fabric.WriteFailure(w, err)
		if w.Code != statuses[code] {
			t.Errorf("%s: got status %d, want %d", code, w.Code, statuses[code])
		}
		_, got := facts(t, failing(err))
		if bourse.CodeOf(got) != code || got.Error() != err.Error() {
			t.Errorf("%s: got %q %q, want %q", code, bourse.CodeOf(got), got, err)
		}
	}
}

func TestFailureOf(t *testing.T) {
	secret := errors.New("open /var/lib/secret: permission denied")
	tests := []struct {
		name    string
		err     error
		code    bourse.Code
		message string
	}{
		{"an error without a code", secret, bourse.CodeInternal, "internal error"},
		{"an internal error with a cause", bourse.Errorf(bourse.CodeInternal, "read: %w", secret), bourse.CodeInternal, "internal error"},
		{"an internal error with a message", bourse.Errorf(bourse.CodeInternal, "the disk is gone"), bourse.CodeInternal, "the disk is gone"},
		{"an unknown code", bourse.Errorf("nonsense", "no"), bourse.CodeInternal, "no"},
		{"a deadline", context.DeadlineExceeded, bourse.CodeTimeout, "context deadline exceeded"},
		{"a canceled call", context.Canceled, bourse.CodeCanceled, "context canceled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got := facts(t, failing(tt.err))
			if bourse.CodeOf(got) != tt.code || got.Error() != tt.message {
				t.Errorf("got %q %q, want %q %q", bourse.CodeOf(got), got, tt.code, tt.message)
			}
		})
	}
	long := bourse.Errorf(bourse.CodeInvalid, "%s", strings.Repeat("ä", 1<<20))
	if _, got := facts(t, failing(long)); bourse.CodeOf(got) != bourse.CodeInvalid || len(got.Error()) > 10_000 {
		t.Errorf("an endless message: got code %q and %d bytes", bourse.CodeOf(got), len(got.Error()))
	}
}

// TestNoFailure checks error replies that are not a Failure, for example from an intermediary or
// from another release.
func TestNoFailure(t *testing.T) {
	for _, body := range []string{"", "<html>", "{}", "null", `{"code":7}`, `{"code":"nonsense","message":"x"}`, `{"code":""}`, strings.Repeat("x", 1<<20)} {
		for _, status := range []int{301, 400, 404, 502, 503} {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
			_, err := facts(t, fabrictest.Serving(h))
			if bourse.CodeOf(err) != bourse.CodeInternal {
				t.Errorf("status %d, body %.40q: got %v, want internal", status, body, err)
			}
		}
	}
}
