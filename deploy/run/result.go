package run

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/release"
)

// Result is how a run went.
type Result struct {
	// Status is that of the release: complete, failed (everything is as it was before,
	// but for what a plan does not return) or interrupted (Left says what is not).
	Status release.Status `json:"status"`
	Steps  []Outcome      `json:"steps"`            // by id
	Failed []Evidence     `json:"failed,omitempty"` // of machines whose steps failed
	Left   []Leftover     `json:"left,omitempty"`
	Silent []string       `json:"silent,omitempty"` // proxies that had not heard of everything
	Took   time.Duration  `json:"took"`
	// Plan is the plan that was carried out: the one that Run was given, or was made again.
	Plan deploy.Plan `json:"-"`
}

// Outcome is how one step went.
type Outcome struct {
	Step    int              `json:"step"`
	State   State            `json:"state,omitempty"` // "": it did not begin
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"` // that it made
	Took    time.Duration    `json:"took,omitempty"`
	Text    string           `json:"text,omitempty"` // why it failed, or was not undone
}

// Leftover is something that is neither as the plan wants it nor as it was.
type Leftover struct {
	Step    int              `json:"step"`
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"`
	What    string           `json:"what"`  // what it is like now, and why it could not be returned
	GoOn    string           `json:"go_on"` // what to do about it
}
