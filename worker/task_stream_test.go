package worker

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
)

// An answer streams from the program through the worker to the caller. Each part
// arrives before the program continues.
func TestAnAnswerStreams(t *testing.T) {
	next := make(chan struct{})
	p := newProgram(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range []string{"one", "two", "three"} {
			_, _ = w.Write([]byte(part))
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	h := newHost(t, nil)
	h.place(p.Warmed("slow", 1))
	server := httptest.NewServer(direct.Handler("w1", h.Handler()))
	defer server.Close()
	f := direct.New(nil)
	defer f.Close()
	c, to := fabric.Trader{Fabric: f}, bourse.Member{ID: "w1", Address: strings.TrimPrefix(server.URL, "http://")}

	order := call(t, "slow", 1)
	var parts []string
	order.Task.Output = func(part []byte) {
		parts = append(parts, string(part))
		if len(part) > 0 {
			next <- struct{}{}
		}
	}
	fill, refusal, err := c.Claim(t.Context(), to, &bourse.Claim{Order: *order})
	if err != nil || refusal != nil || ended(fill.Task) != "answered 0 onetwothree" {
		t.Fatalf("claim: %+v, %+v, %v", fill, refusal, err)
	}
	if want := []string{"", "one", "two", "three"}; !slices.Equal(parts, want) {
		t.Errorf("parts %q, want %q", parts, want)
	}
	refused := call(t, "nobody", 1)
	refused.Task.Output = order.Task.Output
	if _, refusal, err := c.Claim(t.Context(), to, &bourse.Claim{Order: *refused}); err != nil || refusal == nil || len(parts) != 4 {
		t.Errorf("refusal %+v, %v", refusal, err)
	}
	invalid := call(t, "slow", 1)
	invalid.Task.Output, invalid.Task.Timeout = order.Task.Output, -1
	if _, _, err := c.Claim(t.Context(), to, &bourse.Claim{Order: *invalid}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("invalid: %v", err)
	}
}
