package fabric_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// claimStreamed claims a task whose answer streams from a worker that answers
// with body.
func claimStreamed(t *testing.T, body string) (fill *bourse.Fill, refusal *bourse.Refusal, parts []string, err error) {
	t.Helper()
	h := memory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/worker/claim/stream" {
			t.Errorf("path %s", r.URL.Path)
		}
		_, _ = io.WriteString(w, body)
	})}
	claim := &bourse.Claim{Order: bourse.Order{Task: &bourse.TaskOrder{Output: func(p []byte) { parts = append(parts, string(p)) }}}}
	fill, refusal, err = fabric.NewClient(h).Claim(t.Context(), w1, claim)
	return fill, refusal, parts, err
}

func TestAClaimThatStreams(t *testing.T) {
	const start = "{}\n" + `{"output":"b25l"}` + "\n"
	fill, _, parts, err := claimStreamed(t, start+`{"reply":{"fill":{"task":{"end":"answered"},"claimed":1,"started":2}}}`+"\n")
	if err != nil || fill.Task.End != bourse.TaskAnswered || len(parts) != 2 || parts[1] != "one" {
		t.Errorf("got %+v, %q, %v", fill, parts, err)
	}
	for name, c := range map[string]struct {
		body string
		want bourse.Code
	}{
		"a failure":       {start + `{"failure":{"code":"unavailable","message":"m"}}`, bourse.CodeUnavailable},
		"it breaks off":   {start, bourse.CodeTimeout},
		"half a line":     {start + `{"repl`, bourse.CodeTimeout},
		"nothing":         {"", bourse.CodeTimeout},
		"neither yes, no": {`{"reply":{}}`, bourse.CodeInternal},
	} {
		if _, _, _, err := claimStreamed(t, c.body); bourse.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// FuzzClaimStream reads what anyone may answer with, a line at a time.
func FuzzClaimStream(f *testing.F) {
	for _, s := range []string{"{}\n", `{"output":"b25l"}`, `{"reply":{"fill":{}}}`, `{"failure":{}}`, `{"failure":{"code":"x"}}`, "null\n[]\n", "{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		fill, refusal, _, err := claimStreamed(t, body)
		if (err == nil) != ((fill == nil) != (refusal == nil)) {
			t.Errorf("got %v, %v, %v", fill, refusal, err)
		}
		if err != nil && bourse.CodeOf(err) == "" {
			t.Errorf("an error without a code: %v", err)
		}
	})
}
