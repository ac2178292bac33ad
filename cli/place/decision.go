package place

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// PrintDecision prints how an order was decided: which workers were asked, why some refused
// it, and how the willing ones were ranked.
func PrintDecision(w cli.Stream, d *bourse.Decision) error {
	var head cli.Facts
	head.Add("order", string(d.Order))
	head.Add("app", string(d.App))
	head.Add("regions", showChoices(d.Regions))
	head.Add("outcome", outcome(d))
	head.Add("asked", asked(d))
	if !d.At.IsZero() {
		head.Add("at", cli.At(d.At))
	}
	head.Add("times", times(d.Times))
	if err := head.Write(w); err != nil {
		return err
	}
	for i := range d.Rounds {
		if err := printRound(w, i, d); err != nil {
			return err
		}
	}
	return nil
}

func printRound(w cli.Stream, i int, d *bourse.Decision) error {
	r := &d.Rounds[i]
	if len(d.Rounds) > 1 {
		fmt.Fprintf(w, "\nround %d: %s, asked %d of %s\n", i+1, showChoice(r.Regions), r.Asked, cli.Count(r.Candidates, "worker"))
	}
	if len(r.Ranked) > 0 {
		title := "ranked (0 to 1, higher is better)"
		if filledBy(d, r) != "" {
			title = "ranked (0 to 1, higher is better; * filled it)"
		}
		fmt.Fprintln(w, "\n"+title)
		for _, line := range policyLines(r) {
			fmt.Fprintln(w, line)
		}
		if r.OldestQuote > 0 {
			fmt.Fprintf(w, "no worker was asked; ranked by answers that were up to %s old, and by later claims\n", cli.Took(r.OldestQuote))
		}
		if err := rankingTable(r.Ranked, filledBy(d, r)).Write(w); err != nil {
			return err
		}
	}
	if len(r.Refusals) > 0 {
		fmt.Fprintf(w, "\nrefused\n")
		if err := refusalTable(r.Refusals).Write(w); err != nil {
			return err
		}
	}
	if len(r.Claims) > 0 {
		fmt.Fprintf(w, "\nclaims\n")
		return claimTable(r.Claims).Write(w)
	}
	return nil
}

// policyLines names the policies that ranked a round's workers, and describes what the shadow policy
// would have changed.
func policyLines(r *bourse.Round) (lines []string) {
	seen := map[bourse.Region]bool{}
	for _, k := range r.Ranked {
		if k.Policy != "" && !seen[k.Region] {
			seen[k.Region] = true
			lines = append(lines, cli.Clean(fmt.Sprintf("policy in %s: %s", k.Region, k.Policy)))
		}
	}
	switch s := r.Shadow; {
	case s == nil:
	case s.Gain > 0:
		lines = append(lines, cli.Clean(fmt.Sprintf("shadow policy: %s prefers %s (%s, higher by %s)", s.Policy, s.Worker, score(s.Score), score(s.Gain))))
	default:
		lines = append(lines, cli.Clean(fmt.Sprintf("shadow policy: %s agrees", s.Policy)))
	}
	return lines
}

// filledBy returns the worker that filled the order in the given round, or "" if no worker
// did. A decision that is stored together with the order's machine contains no claims,
// only the worker's name.
func filledBy(d *bourse.Decision, r *bourse.Round) bourse.WorkerID {
	for _, c := range r.Claims {
		if c.Refusal == nil {
			return c.Worker
		}
	}
	if len(r.Claims) == 0 && r == &d.Rounds[len(d.Rounds)-1] {
		return d.Worker
	}
	return ""
}

func outcome(d *bourse.Decision) string {
	switch d.Outcome {
	case bourse.OutcomeFilled:
		return "filled by " + string(d.Worker) + ": " + filledWith(d)
	case bourse.OutcomeRefused:
		return "refused: no worker could fill it"
	case bourse.OutcomeCanceled:
		return "canceled: the caller disconnected"
	case bourse.OutcomeTimeout:
		return "timeout: its deadline passed"
	case bourse.OutcomeQuoted:
		if i := slices.IndexFunc(d.Rounds, func(r bourse.Round) bool { return len(r.Ranked) > 0 }); i >= 0 {
			best := d.Rounds[i].Ranked[0]
			return fmt.Sprintf("quoted only: %s in %s would be claimed first", best.Worker, best.Region)
		}
		return "quoted only: no worker could fill it"
	}
	return string(d.Outcome)
}

// filledWith describes what an order produced: the machine or volume that it created or, if it
// created neither, capacity held for a reservation.
func filledWith(d *bourse.Decision) string {
	switch {
	case d.Machine != "":
		return "machine " + string(d.Machine)
	case d.Volume != "":
		return "volume " + string(d.Volume)
	}
	return "held for a reservation"
}

// asked summarizes how many workers were asked, and their answers.
func asked(d *bourse.Decision) string {
	candidates, asked, yes, no, silent := 0, 0, 0, 0, 0
	for i, r := range d.Rounds {
		if r.OldestQuote > 0 && i < len(d.Rounds)-1 { // this round's workers are asked again in the next round, which counts them
			continue
		}
		candidates += r.Candidates
		asked += r.Asked
		yes += len(r.Ranked)
		for _, f := range r.Refusals {
			if f.Reason == bourse.RefusedNoAnswer {
				silent++
				continue
			}
			no++
		}
	}
	s := fmt.Sprintf("%d of %s: %d willing, %d refused", asked, cli.Count(candidates, "worker"), yes, no)
	if silent > 0 {
		s += fmt.Sprintf(", %d did not answer", silent)
	}
	return s
}

func times(t bourse.Times) string {
	if t.Total == 0 {
		return ""
	}
	s := cli.Took(t.Total)
	var parts []string
	for _, p := range []struct {
		name string
		took string
		set  bool
	}{
		{"quote", cli.Took(t.Quote), t.Quote > 0},
		{"rank", cli.Took(t.Rank), t.Rank > 0},
		{"claim", cli.Took(t.Claim), t.Claim > 0},
		{"start", cli.Took(t.Start), t.Start > 0},
	} {
		if p.set {
			parts = append(parts, p.name+" "+p.took)
		}
	}
	if len(parts) > 0 {
		s += " (" + strings.Join(parts, ", ") + ")"
	}
	return s
}

func showChoices(list []bourse.Choice) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = showChoice(c)
	}
	return strings.Join(parts, ", then ")
}

func showChoice(c bourse.Choice) string {
	parts := make([]string, len(c))
	for i, r := range c {
		parts[i] = string(r)
	}
	return strings.Join(parts, " or ")
}
