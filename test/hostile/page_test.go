package hostile

import (
	"net/http"
	"testing"
)

// A page of another site sends a form to the broker: it is refused, and no
// machine runs.
func TestAPageCannotOrder(t *testing.T) {
	broker, _ := startPair(t)
	order := `{"region":"gru","config":{"image":"host","init":{"exec":["/bin/true"]}}}`
	got := send(t, broker.API, "POST /v1/apps/default/machines", []string{
		"Host: " + broker.API, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain",
	}, order)
	if got.status != http.StatusForbidden {
		t.Errorf("a page's order: %d %s, want 403", got.status, got.body)
	}
	if got := send(t, broker.API, "GET /v1/apps/default/machines", []string{"Host: " + broker.API}, ""); got.body != "[]\n" && got.body != "[]" {
		t.Errorf("after a page's order the machines are %s, want none", got.body)
	}
}
