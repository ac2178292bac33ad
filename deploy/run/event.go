package run

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Whole is the step of events about the run itself.
const Whole = -1

// Event reports the progress of a run.
type Event struct {
	At      time.Time        `json:"at"`
	Step    int              `json:"step"` // its id in the plan, or Whole
	State   State            `json:"state"`
	Machine bourse.MachineID `json:"machine,omitempty"` // once it is known
	// Text tells what the step is waiting for, why it failed, or what it found.
	Text string        `json:"text,omitempty"`
	Took time.Duration `json:"took,omitempty"` // the duration of a step that has ended, or of undoing it
	// Line is a line of the step's machine, in the state Output.
	Line *machinesapi.LogLine `json:"line,omitempty"`
	// Plan is set if the plan was made again. Later events are about its steps.
	Plan *deploy.Plan `json:"plan,omitempty"`
	// Evidence describes the machine of a failed step, as it was before anything was undone.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// State is the state of a step, or of the run.
type State string

// The states of a step. The run itself is waiting, running or undoing, and at last done, failed, undone or left.
const (
	Waiting State = "waiting" // running, and delayed as Text tells: by a lease, a silent server, a failing check
	Running State = "running" // it has begun, or continues after waiting
	Output  State = "output"  // it is still running, and its machine wrote Line
	Done    State = "done"
	Failed  State = "failed"
	Undoing State = "undoing" // undoing it has begun
	Undone  State = "undone"
	Left    State = "left" // it could not be undone, or was not to be
)

// Result is the result of a run.
type Result struct {
	// Status is that of the release: complete, failed (everything was undone) or interrupted (except for Left).
	Status release.Status `json:"status"`
	Steps  []Outcome      `json:"steps"`            // by id
	Failed []Evidence     `json:"failed,omitempty"` // about machines whose steps failed
	Left   []Leftover     `json:"left,omitempty"`
	Silent []string       `json:"silent,omitempty"` // proxies that did not learn about all changes in time
	Took   time.Duration  `json:"took"`
	// Plan is the plan that was carried out: the given one, or the one that was made again.
	Plan deploy.Plan `json:"-"`
}

// Outcome is the outcome of one step.
type Outcome struct {
	Step    int              `json:"step"`
	State   State            `json:"state,omitempty"` // "": it has not begun
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"` // that it made
	Took    time.Duration    `json:"took,omitempty"`
	Text    string           `json:"text,omitempty"` // why it failed, or was not undone
}

// Leftover is something that is neither as planned nor as it was.
type Leftover struct {
	Step    int              `json:"step"`
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"`
	What    string           `json:"what"` // what was left, and why it could not be undone
	Next    string           `json:"next"` // a command that helps
}

// last returns the last event of a run.
func (r *Result) last(err error) Event {
	e := Event{Step: Whole, State: Failed, Took: r.Took, Text: why(err)}
	switch {
	case err == nil:
		e.State = Done
	case len(r.Left) > 0:
		e.State = Left
	case slices.ContainsFunc(r.Steps, func(o Outcome) bool { return o.State == Undone }):
		e.State = Undone
	}
	return e
}
