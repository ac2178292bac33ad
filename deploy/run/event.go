package run

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// WholeRun is the value of Event.Step in events that concern the run itself.
const WholeRun = -1

// Event reports the progress of a run.
type Event struct {
	At      time.Time        `json:"at"`
	Step    int              `json:"step"` // ID of the step, or WholeRun
	State   State            `json:"state"`
	Machine bourse.MachineID `json:"machine,omitempty"` // machine of the step, once known
	// Text explains the state, for example what the step is waiting for or why it failed.
	Text string        `json:"text,omitempty"`
	Took time.Duration `json:"took,omitempty"` // duration of a finished step, or of undoing it
	// Line is a line of output from the step's machine. It is set in state Output.
	Line *machinesapi.LogLine `json:"line,omitempty"`
	// Plan is the new plan if the run has replanned. Later events refer to its steps.
	Plan *deploy.Plan `json:"plan,omitempty"`
	// Evidence describes the machine of a failed step as it was before anything was undone.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// State is the state of a step or of the run.
type State string

// The states of a step. The run itself also has one of these states: Waiting, Running or Undoing while it is in
// progress, and Done, Failed, Undone or Left once it has ended.
const (
	Waiting State = "waiting" // the step is delayed by a lease, an unavailable server or a failing check; Text gives the reason
	Running State = "running" // the step has begun, or continues after Waiting
	Output  State = "output"  // the step is still running, and its machine wrote Line
	Done    State = "done"
	Failed  State = "failed"
	Undoing State = "undoing" // the step is being undone
	Undone  State = "undone"
	Left    State = "left" // the step could not be undone, or must not be undone
)

// Result is the outcome of a run.
type Result struct {
	// Status is the release's resulting status: complete, failed (everything was undone) or interrupted (some changes
	// were not undone).
	Status release.Status `json:"status"`
	Steps  []Outcome      `json:"steps"`            // outcome of each step, by ID
	Failed []Evidence     `json:"failed,omitempty"` // evidence about machines whose steps failed
	Left   []Leftover     `json:"left,omitempty"`
	Silent []string       `json:"silent,omitempty"` // proxies that did not receive all changes in time
	Took   time.Duration  `json:"took"`
	// Plan is the executed plan: the latest one if the run has replanned, and otherwise the given plan.
	Plan deploy.Plan `json:"-"`
}

// Outcome is the outcome of one step.
type Outcome struct {
	Step    int              `json:"step"`
	State   State            `json:"state,omitempty"` // "" if the step has not begun
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"` // volume that the step created
	Took    time.Duration    `json:"took,omitempty"`
	Text    string           `json:"text,omitempty"` // reason why the step failed or was not undone
}

// Leftover is a change that a failed run began or completed, but did not undo.
type Leftover struct {
	Step    int              `json:"step"`
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"`
	What    string           `json:"what"` // the change that was not undone, and the reason
	Next    string           `json:"next"` // command to run next
}

// last returns the run's last event, which reports the outcome. err is the error that ended the run, or nil.
func (r *Result) last(err error) Event {
	e := Event{Step: WholeRun, State: Failed, Took: r.Took, Text: errorText(err)}
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
