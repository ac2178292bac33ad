package cli

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// rankingTable has one row for each willing worker, best first, with a column
// for each part of the score; a star is at the worker that filled the order.
func rankingTable(ranked []bourse.Ranking, filler bourse.WorkerID) *table {
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
		head = append(head, upper(name))
	}
	t := newTable(head...).numbers(0, 3)
	for i := range names {
		t.numbers(4 + i)
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
		t.row(row...)
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

// refusalTable says for each no what was wanted and what was free.
func refusalTable(refusals []bourse.Refusal) *table {
	var list []bourse.Refusal
	for _, r := range refusals {
		list = append(list, r.Shortages()...)
	}
	head := []string{"WORKER", "REGION", "REASON", "WANTED", "FREE"}
	plain := !slices.ContainsFunc(list, func(r bourse.Refusal) bool { return r.Reason != bourse.RefusedResource })
	if !plain {
		head = append(head, "DETAIL")
	}
	t := newTable(head...).narrow(len(head) - 1)
	for _, r := range list {
		row := []string{dash(string(r.Worker)), dash(string(r.Region)), reason(r)}
		if r.Reason == bourse.RefusedResource { // wanted and free say what the sentence does
			row = append(row, amount(r.Resource, r.Wanted), amount(r.Resource, r.Free), "")
		} else {
			row = append(row, "-", "-", r.Detail)
		}
		t.row(row[:len(head)]...)
	}
	return t
}

// reason names what a refusal is about: "memory", or "label arch".
func reason(r bourse.Refusal) string {
	switch r.Reason {
	case bourse.RefusedResource:
		return r.Resource
	case bourse.RefusedLabel, bourse.RefusedUnknown:
		return string(r.Reason) + " " + r.Resource
	case bourse.RefusedNoAnswer:
		return "no answer"
	case bourse.RefusedLost:
		return "answer lost"
	case bourse.RefusedImage, bourse.RefusedRegion, bourse.RefusedName, bourse.RefusedCanceled, bourse.RefusedUnavailable, bourse.RefusedDriver,
		bourse.RefusedVolume, bourse.RefusedZone, bourse.RefusedReservation, bourse.RefusedApp, bourse.RefusedOvertaken:
		return string(r.Reason)
	}
	return string(r.Reason)
}

func claimTable(claims []bourse.ClaimTry) *table {
	t := newTable("#", "WORKER", "TOOK", "RESULT").numbers(0, 2).narrow(3)
	for i, c := range claims {
		result := "filled"
		if c.Refusal != nil {
			result = "refused: " + c.Refusal.Detail
		}
		t.row(strconv.Itoa(i+1), string(c.Worker), took(c.Took), result)
	}
	return t
}
