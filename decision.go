package bourse

import "time"

// Outcome is how an order ended.
type Outcome string

// The outcomes. An order has no other end, and none that waits.
const (
	OutcomeFilled   Outcome = "filled"
	OutcomeRefused  Outcome = "refused"
	OutcomeCanceled Outcome = "canceled" // the caller left
	OutcomeTimeout  Outcome = "timeout"  // its deadline passed
	OutcomeQuoted   Outcome = "quoted"   // only quotes were asked for
)

// Decision is the record of how an order was decided: who was asked, who said
// no and why, how the rest was ranked, which claims were made. For a while the
// broker that decided has it. The worker that filled the order keeps it with
// the machine, as it stood when the claim was made: without that claim and
// without times.
type Decision struct {
	Order   OrderID   `json:"order"`
	Chosen  OrderID   `json:"chosen,omitempty"` // what its caller called it, if that is another id
	App     AppName   `json:"app"`
	AppID   string    `json:"app_id,omitempty"` // see [App.Owns]
	Regions []Choice  `json:"regions"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	Worker  WorkerID  `json:"worker,omitempty"`  // that filled it
	Machine MachineID `json:"machine,omitempty"` // that it became
	Volume  VolumeID  `json:"volume,omitempty"`  // the same, of an order for a volume
	Rounds  []Round   `json:"rounds,omitempty"`
	Times   Times     `json:"times"`
	Message string    `json:"message,omitempty"` // of a refusal, as the caller got it
}

// Round is one asking for quotes: of one choice of regions, or of the rest of
// a large region after its sample refused. When each worker had said yes to an
// order of the same kind just before, no one is asked and those quotes, with
// the claims made since, are ranked instead.
type Round struct {
	Regions    Choice        `json:"regions"`
	Candidates int           `json:"candidates"`         // known in those regions
	Asked      int           `json:"asked"`              // of them
	Standing   time.Duration `json:"standing,omitempty"` // age of the oldest quote, if no one was asked
	Ranked     []Ranking     `json:"ranked,omitempty"`   // best first; at most MaxRecorded
	Refusals   []Refusal     `json:"refusals,omitempty"` // of quotes; at most MaxRecorded
	Claims     []ClaimTry    `json:"claims,omitempty"`
}

// MaxRecorded bounds each list of a Round in a stored Decision.
const MaxRecorded = 64

// Ranking is one willing worker's place, with each part of its score. Scores
// are 0 (worst) to 1 (best), already weighted; Score is their sum.
type Ranking struct {
	Worker WorkerID    `json:"worker"`
	Region Region      `json:"region"`
	Score  float64     `json:"score"`
	Parts  []ScorePart `json:"parts,omitempty"`
}

// ScorePart is one curve's contribution to a Ranking.
type ScorePart struct {
	Name  string  `json:"name"`  // a resource, "image", "spread" or "load"
	Value float64 `json:"value"` // what the curve was asked at
	Score float64 `json:"score"` // its answer times its weight
}

// ClaimTry is one claim and what became of it.
type ClaimTry struct {
	Worker  WorkerID      `json:"worker"`
	Refusal *Refusal      `json:"refusal,omitempty"` // nil: it filled the order
	Took    time.Duration `json:"took"`
}

// Times are the parts of an order's life, in the order of Server-Timing.
type Times struct {
	Quote time.Duration `json:"quote"`
	Rank  time.Duration `json:"rank"`
	Claim time.Duration `json:"claim"`
	Start time.Duration `json:"start"`
	Total time.Duration `json:"total"`
}

// Refusals returns every no of the decision, of quotes and of claims.
func (d *Decision) Refusals() []Refusal {
	var out []Refusal
	for _, r := range d.Rounds {
		out = append(out, r.Refusals...)
		for _, c := range r.Claims {
			if c.Refusal != nil {
				out = append(out, *c.Refusal)
			}
		}
	}
	return out
}
