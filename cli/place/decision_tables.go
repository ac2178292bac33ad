package place

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// rankingTable has one row for each willing worker, best first, and one column for each
// part of the score. A star marks the worker that filled the order.
func rankingTable(ranked []bourse.Ranking, filler bourse.WorkerID) *cli.Table {
	var names []string
	seen := map[string]bool{}
	for _, r := range ranked {
		for _, p := range r.Parts {
			if !seen[p.Name] {
				seen[p.Name] = true
				names = append(names, p.Name)
			}
		}
	}
	head := []string{"#", "WORKER", "REGION", "SCORE"}
	for _, name := range names {
		head = append(head, strings.ToUpper(name))
	}
	t := cli.NewTable(head...).Numbers(0, 3)
	for i := range names {
		t.Numbers(4 + i)
	}
	for i, r := range ranked {
		worker := string(r.Worker)
		if r.Worker == filler {
			worker += " *"
		}
		row := []string{strconv.Itoa(i + 1), worker, string(r.Region), score(r.Score)}
		for _, name := range names {
			row = append(row, part(r.Parts, name))
		}
		t.Row(row...)
	}
	return t
}

func score(f float64) string { return fmt.Sprintf("%.3f", f) }

func part(parts []bourse.ScorePart, name string) string {
	for _, p := range parts {
		if p.Name == name {
			return score(p.Score)
		}
	}
	return "-"
}

// refusalTable returns a table of refusals, with the wanted and the available amounts.
func refusalTable(refusals []bourse.Refusal) *cli.Table {
	var list []bourse.Refusal
	for _, r := range refusals {
		list = append(list, r.Shortages()...)
	}
	head := []string{"WORKER", "REGION", "REASON", "WANTED", "FREE"}
	plain := !slices.ContainsFunc(list, func(r bourse.Refusal) bool { return r.Reason != bourse.RefusedResource })
	if !plain {
		head = append(head, "DETAIL")
	}
	t := cli.NewTable(head...).Narrow(len(head) - 1)
	for _, r := range list {
		row := []string{cmp.Or(string(r.Worker), "-"), cmp.Or(string(r.Region), "-"), reason(r)}
		if r.Reason == bourse.RefusedResource { // the other columns already contain the amounts
			row = append(row, cli.Amount(r.Resource, r.Wanted), cli.Amount(r.Resource, r.Free), "")
		} else {
			row = append(row, "-", "-", r.Detail)
		}
		t.Row(row[:len(head)]...)
	}
	return t
}

// reason describes the cause of a refusal, for example "memory" or "label arch".
func reason(r bourse.Refusal) string {
	switch r.Reason {
	case bourse.RefusedResource:
		return r.Resource
	case bourse.RefusedLabel, bourse.RefusedUnknown:
		return string(r.Reason) + " " + r.Resource
	default:
		return strings.ReplaceAll(string(r.Reason), "_", " ") // for example "no answer"
	}
}

func claimTable(claims []bourse.ClaimAttempt) *cli.Table {
	t := cli.NewTable("#", "WORKER", "TIME", "RESULT").Numbers(0, 2).Narrow(3)
	for i, c := range claims {
		result := "filled"
		if c.Refusal != nil {
			result = "refused: " + c.Refusal.Detail
		}
		t.Row(strconv.Itoa(i+1), string(c.Worker), cli.Took(c.Took), result)
	}
	return t
}
