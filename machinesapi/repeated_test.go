package machinesapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestErrorsSayEachFactOnce checks error messages in the form in which they are shown to people. They must state each
// fact only once, and omit text that is meant for programs.
func TestErrorsSayEachFactOnce(t *testing.T) {
	const why = " (gru: 2 workers asked; slots: wanted 3, most free 2 on gru-1)"
	short := []bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: "slots", Wanted: 3, Free: 2}}
	room := func(what string) string {
		return machinesapi.WithShortage(short, "insufficient resources available to fulfill request: could not reserve resource for "+what+": insufficient slots available to fulfill request"+why)
	}
	for sent, c := range map[string]struct {
		code bourse.Code
		want string
	}{
		room("machine"): {bourse.CodeInsufficient, "insufficient slots available to fulfill request" + why},
		room("task"):    {bourse.CodeInsufficient, "insufficient slots available to fulfill request" + why},
		machinesapi.NoVolumeText + room("volume"):                 {bourse.CodeInsufficient, "insufficient slots available to fulfill request" + why},
		machinesapi.WithShortage(short, "no worker has capacity"): {bourse.CodeInsufficient, "insufficient slots available to fulfill request; no worker has capacity"},
		machinesapi.WithPrefix(bourse.CodeInsufficient, "insufficient memory available to fulfill request on the current host"): {
			bourse.CodeInsufficient, "insufficient memory available to fulfill request on the current host",
		},
		machinesapi.NameTakenText + `machine 148e21ea1d5389 already exists with name "web"`: {bourse.CodeAlreadyExists, `machine 148e21ea1d5389 already exists with name "web"`},
		machinesapi.WithPrefix(bourse.CodeNotFound, "machine not found"):                    {bourse.CodeNotFound, "machine not found"},
	} {
		body, err := json.Marshal(machinesapi.ErrorBody{Error: sent, Code: c.code})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code.Status())
			_, _ = w.Write(body)
		}))
		_, err = (&machinesapi.Client{BaseURL: server.URL}).Order(t.Context(), "01JD3V7K7Y5C5ZQ7W1R2M3N4P6")
		server.Close()
		if got := bourse.MessageOf(err); got != c.want || repeated(got) != "" {
			t.Errorf("%q is shown as\n %q, want\n %q; repeated: %q", sent, got, c.want, repeated(got))
		}
	}
}

// repeated returns three consecutive words that occur twice in the text, or "" if there are none.
func repeated(text string) string {
	words := strings.Fields(text)
	seen := map[string]bool{}
	for i := range max(0, len(words)-2) {
		three := strings.Join(words[i:i+3], " ")
		if seen[three] {
			return three
		}
		seen[three] = true
	}
	return ""
}
