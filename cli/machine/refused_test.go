package machine

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestImageErrorsArePrintedOnce checks that if an image cannot be pulled or lacks the
// program, the error is printed once, without a table of refusals that would repeat it.
func TestImageErrorsArePrintedOnce(t *testing.T) {
	const order = "01M7Y71X6AS59JBN7QNQFH8DEW"
	for name, c := range map[string]struct {
		code   bourse.Code
		reason bourse.RefusalReason
		said   string
		exit   int
		want   string
	}{
		"no such image": {bourse.CodeNotFound, bourse.RefusedNoImage, "image nginx:0: there is no such image", 3, `error: image nginx:0: there is no such image
  try: bourse order show 01M7Y71X6AS59JBN7QNQFH8DEW
`},
		"not reached": {bourse.CodeUnavailable, bourse.RefusedRegistry, "image r.example/web: r.example cannot be reached: no such host", 7, `error: image r.example/web: r.example cannot be reached: no such host
  try: bourse order show 01M7Y71X6AS59JBN7QNQFH8DEW
`},
		"no such program": {bourse.CodeInvalid, bourse.RefusedProgram, `the container cannot be started: exec: "nosuch": executable file not found in $PATH`, 2, `error: the container cannot be started: exec: "nosuch": executable file not found in $PATH
  try: bourse order show 01M7Y71X6AS59JBN7QNQFH8DEW
`},
	} {
		t.Run(name, func(t *testing.T) {
			body := machinesapi.ErrorBody{Error: c.said, Code: c.code, OrderID: order, Refusals: []bourse.Refusal{{Worker: "gru-1", Region: "gru", Reason: c.reason, Detail: c.said}}}
			got := line.Against(t, clitest.Replies(c.code.Status(), body), "machine", "run", "nginx")
			if got.Code != c.exit || got.Err != c.want || got.Out != "" {
				t.Errorf("exit status %d, %s\nwant %d, %s", got.Code, got.Err, c.exit, c.want)
			}
		})
	}
}

// TestAppCreationIsSuggestedForMissingAppsOnly checks that an error suggests "bourse app create" only
// if the missing object is the app.
func TestAppCreationIsSuggestedForMissingAppsOnly(t *testing.T) {
	const hint = "bourse app create shop"
	for text, want := range map[string]bool{
		machinesapi.NoAppText:                              true,
		"image nginx:0: there is no such image (gru-1)":    false,
		"reservation 01M7Y71X6AS59JBN7QNQFH8DEW not found": false,
	} {
		body := machinesapi.ErrorBody{Error: text, Code: bourse.CodeNotFound}
		if !want { // a refusal whose details are not in the message
			body.Refusals = []bourse.Refusal{{Worker: "mad-1", Region: "mad", Reason: bourse.RefusedResource, Resource: "memory"}}
		}
		got := line.Against(t, clitest.Replies(bourse.CodeNotFound.Status(), body), "machine", "run", "nginx", "-a", "shop")
		if got.Code != 3 || strings.Contains(got.Err, hint) != want {
			t.Errorf("%s: exit status %d, %q contains %q: %t, want %t", text, got.Code, got.Err, hint, !want, want)
		}
	}
}
