package cli

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// A worker that is short of several resources has a row for each of them, with
// what was wanted and what was free, wherever refusals are shown.
func TestEachShortageHasARow(t *testing.T) {
	d := decided()
	d.Outcome, d.Worker, d.Machine, d.Regions = bourse.OutcomeRefused, "", "", []bourse.Choice{{"gru"}}
	d.Rounds[0].Ranked, d.Rounds[0].Claims = nil, nil
	d.Rounds[0].Refusals = []bourse.Refusal{{
		Worker: "gru-3", Region: "gru", Reason: bourse.RefusedResource, Resource: "memory", Wanted: 2048, Free: 512, Detail: "insufficient memory",
		Also: []bourse.Shortage{{Resource: "cpu", Wanted: 1500, Free: 1000}, {Resource: "gpu.a10", Wanted: 2, Free: 1}},
	}}
	rows := []*regexp.Regexp{
		regexp.MustCompile(`(?m)^ *gru-3 +gru +memory +2 GiB +512 MiB`),
		regexp.MustCompile(`(?m)^ *gru-3 +gru +cpu +1\.5 \S+ +1 `),
		regexp.MustCompile(`(?m)^ *gru-3 +gru +gpu\.a10 +2 +1\b`),
	}
	refused := machinesapi.ErrorBody{
		Error: "no worker in gru could fill the order", Status: machinesapi.StatusInsufficientCapacity, Code: bourse.CodeInsufficient,
		OrderID: d.Order, Refusals: d.Rounds[0].Refusals,
	}
	for name, got := range map[string]result{
		"order show":  against(t, replies(http.StatusOK, d), "order", "show", string(d.Order)),
		"quote":       against(t, replies(http.StatusOK, d), "quote", "host", "--vm-memory", "2GiB", "--", "true"),
		"machine run": against(t, replies(http.StatusUnprocessableEntity, refused), "machine", "run", "host", "--vm-memory", "2GiB", "--", "true"),
	} {
		for _, row := range rows {
			if found := row.FindAllString(got.out+got.err, -1); len(found) != 1 {
				t.Errorf("%s has %d rows like %s:\n%s%s", name, len(found), row, got.out, got.err)
			}
		}
	}
}
