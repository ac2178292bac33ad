package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is a registry that sends a response's headers after the delay headers, and then a body with one byte for each
// element of pauses, which is the delay before the byte.
type script struct {
	headers time.Duration
	pauses  []time.Duration
}

func (s script) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := pause(req.Context(), s.headers); err != nil {
		return nil, err
	}
	return &http.Response{Body: io.NopCloser(&scriptBody{req.Context(), s.pauses})}, nil
}

type scriptBody struct {
	ctx    context.Context //nolint:containedctx // context of the body's request
	pauses []time.Duration
}

func (b *scriptBody) Read(p []byte) (int, error) {
	if len(b.pauses) == 0 {
		return 0, io.EOF
	}
	next := b.pauses[0]
	b.pauses = b.pauses[1:]
	if err := pause(b.ctx, next); err != nil {
		return 0, err
	}
	return copy(p, "x"), nil
}

func pause(ctx context.Context, d time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, d) // WithTimeout starts no timer if d is 0
	defer cancel()
	<-wait.Done()
	return ctx.Err()
}

func TestStalling(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		script script
		reader time.Duration // time that the reader takes between reads
		want   string
		err    error
	}{
		"slow but steady":             {script{9 * second, []time.Duration{9 * second, 9 * second, 9 * second}}, 0, "xxx", nil},
		"no headers":                  {script{11 * second, nil}, 0, "", errStalled},
		"stands still":                {script{0, []time.Duration{second, 11 * second}}, 0, "x", errStalled},
		"the reader is slow":          {script{0, []time.Duration{second, second}}, time.Hour, "xx", nil},
		"stalls after the first byte": {script{0, []time.Duration{second, time.Hour}}, 0, "x", errStalled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Transport: &stallTransport{next: tc.script, limit: 10 * second}}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registry.test/", nil)
				if err != nil {
					t.Fatal(err)
				}
				var got strings.Builder
				resp, err := client.Do(req)
				if err == nil {
					defer resp.Body.Close()
					for buf := make([]byte, 1); err == nil; {
						var n int
						n, err = resp.Body.Read(buf)
						got.Write(buf[:n])
						time.Sleep(tc.reader)
					}
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				if got.String() != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("read %q, %v, want %q, %v", got.String(), err, tc.want, tc.err)
				}
			})
		})
	}
}

// TestCancelIsNoStall checks that a caller that cancels a request does not get an error about a stalled registry.
func TestCancelIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		client := &http.Client{Transport: &stallTransport{next: script{headers: time.Hour}, limit: time.Minute}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://registry.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStalled) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}
