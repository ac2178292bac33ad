package clitest

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// Decision returns a decision with all fields set.
func Decision() bourse.Decision {
	no := bourse.Refusal{Worker: "gru-3", Region: "gru", Reason: bourse.RefusedResource, Resource: "memory", Wanted: 2048, Free: 512, Detail: "memory: wanted 2 GiB, free 512 MiB"}
	rank := func(w bourse.WorkerID, s float64) bourse.Ranking {
		return bourse.Ranking{Worker: w, Region: "gru", Score: s, Policy: "packed@ba9876543210", Parts: []bourse.ScorePart{
			{Name: "cpu", Value: 0.4, Score: s / 2}, {Name: "memory", Value: 0.2, Score: s / 4}, {Name: "spread", Score: s / 8}, {Name: "load", Value: 0.1, Score: s / 8},
		}}
	}
	return bourse.Decision{
		Order: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", App: "shop", Regions: []bourse.Choice{{"gru"}, {"mad", "cdg"}}, Outcome: bourse.OutcomeFilled,
		Worker: "gru-2", Machine: "148e21ea1d5389",
		Rounds: []bourse.Round{{
			Regions: bourse.Choice{"gru"}, Candidates: 5, Asked: 5, Ranked: []bourse.Ranking{rank("gru-1", 0.912), rank("gru-2", 0.8)},
			Shadow: &bourse.Shadow{Policy: "spread@0123456789ab", Worker: "gru-2", Region: "gru", Score: 0.75, Gain: 0.125},
			Refusals: []bourse.Refusal{
				no,
				{Worker: "gru-4", Region: "gru", Reason: bourse.RefusedUnknown, Resource: "slots", Detail: "the worker knows no slots"},
				{Worker: "gru-5", Region: "gru", Reason: bourse.RefusedNoAnswer, Detail: "no answer within 50ms"},
			},
			Claims: []bourse.ClaimAttempt{
				{Worker: "gru-1", Refusal: &bourse.Refusal{
					Worker: "gru-1", Region: "gru", Reason: bourse.RefusedResource, Resource: "cpu", Wanted: 1500, Free: 1000, Detail: "cpu: wanted 1.5 cpus, free 1 cpus",
				}, Took: 700 * time.Microsecond},
				{Worker: "gru-2", Took: 1234 * time.Microsecond},
			},
		}},
		Times: bourse.Times{Quote: 1100 * time.Microsecond, Rank: 12 * time.Microsecond, Claim: 900 * time.Microsecond, Start: 1300 * time.Microsecond, Total: 3400 * time.Microsecond},
	}
}

// RefusedDecision returns a decision about an order that no worker could fill.
func RefusedDecision() bourse.Decision {
	d := Decision()
	d.Outcome, d.Worker, d.Machine, d.Regions = bourse.OutcomeRefused, "", "", []bourse.Choice{{"gru"}}
	d.Rounds[0].Ranked, d.Rounds[0].Claims = nil, nil
	return d
}
