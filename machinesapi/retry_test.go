package machinesapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// busy is a server that refuses a number of requests and then accepts all others.
type busy struct {
	refuses int
	bodies  []string
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	var text []byte
	if r.Body != nil {
		text, _ = io.ReadAll(r.Body)
	}
	b.bodies = append(b.bodies, string(text))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"name":"web"}`)), Request: r}
	if len(b.bodies) <= b.refuses {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "2")
		resp.Body = io.NopCloser(strings.NewReader(`{"error":"busy","code":"rate_limited"}`))
	}
	return resp, nil
}

// TestRetryAfter checks that a request that was refused with 429 is retried with the same body
// after the time in Retry-After, but at most three times.
func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name             string
		refuses, retries int
		sent             int
		code             bourse.Code
	}{
		{"once", 1, 0, 2, ""},
		{"refused as often as the client retries", 3, 0, 4, ""},
		{"forever", 100, 0, 4, bourse.CodeRateLimited},
		{"with retries switched off", 1, -1, 1, bourse.CodeRateLimited},
		{"with one retry", 100, 1, 2, bourse.CodeRateLimited},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &busy{refuses: tt.refuses}
				c := &machinesapi.Client{BaseURL: "http://broker", HTTP: &http.Client{Transport: server}, Retries: tt.retries}
				began := time.Now()
				_, err := c.CreateApp(t.Context(), machinesapi.CreateApp{Name: "web"})
				if got := bourse.CodeOf(err); (err == nil) != (tt.code == "") || (err != nil && got != tt.code) {
					t.Errorf("error %v, want code %q", err, tt.code)
				}
				if len(server.bodies) != tt.sent {
					t.Errorf("%d requests, want %d", len(server.bodies), tt.sent)
				}
				for _, body := range server.bodies {
					if !strings.Contains(body, "web") {
						t.Errorf("body %q, want the first request's body", body)
					}
				}
				if took, least := time.Since(began), time.Duration(tt.sent-1)*2*time.Second; took < least || took > 2*least {
					t.Errorf("the call took %s, want between %s and %s", took, least, 2*least)
				}
			})
		})
	}
}

// TestRetryAfterIsCanceled checks that the wait before a retry ends when the context is canceled.
func TestRetryAfterIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := &machinesapi.Client{BaseURL: "http://broker", HTTP: &http.Client{Transport: &busy{refuses: 9}}}
		began := time.Now()
		if _, err := c.CreateApp(ctx, machinesapi.CreateApp{Name: "web"}); err == nil || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
