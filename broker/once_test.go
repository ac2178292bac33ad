package broker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// saysItOnce fails the test if an error message contains the same three consecutive words twice. It checks all error
// replies in this package's tests.
func saysItOnce(t testing.TB, what string, rec *httptest.ResponseRecorder) {
	t.Helper()
	if rec.Code < http.StatusBadRequest {
		return
	}
	body := rec.Body.String()
	client := machinesapi.Client{BaseURL: "http://broker", Retries: -1, HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		again := httptest.NewRecorder()
		again.WriteHeader(rec.Code)
		_, _ = again.WriteString(body)
		reply := again.Result()
		reply.Request = r
		return reply, nil
	})}}
	_, err := client.Order(t.Context(), bourse.NewOrderID())
	words, seen := strings.Fields(bourse.MessageOf(err)), map[string]bool{}
	for i := range max(0, len(words)-2) {
		three := strings.Join(words[i:i+3], " ")
		if seen[three] {
			t.Errorf("%s: the error contains %q twice: %s", what, three, bourse.MessageOf(err))
		}
		seen[three] = true
	}
}
