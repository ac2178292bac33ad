package admission_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/admission"
)

func TestRequireToken(t *testing.T) {
	tokens, err := admission.ReadTokens(strings.NewReader("good-for-everything *\ngood-for-acme-only acme\n"))
	if err != nil {
		t.Fatal(err)
	}
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for header, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer wrong-and-long-enough": 401, "Basic good-for-everything": 401,
		"Bearer good-for-acme-only": 403, "Bearer good-for-everything": 204, "bearer  good-for-everything": 204,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		admission.RequireToken(inside, tokens).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: status %d, want %d", header, w.Code, want)
		}
		w = httptest.NewRecorder()
		admission.RequireToken(inside, nil).ServeHTTP(w, r)
		if w.Code != http.StatusNoContent {
			t.Errorf("%q if no tokens are configured: status %d, want 204", header, w.Code)
		}
	}
}
