package run

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Whole is the step of events that are about the run itself.
const Whole = -1

// Event is one piece of news of a run.
type Event struct {
	At      time.Time        `json:"at"`
	Step    int              `json:"step"` // its id in the plan; Whole: the run
	State   State            `json:"state"`
	Machine bourse.MachineID `json:"machine,omitempty"` // once it is known
	// Text says what is waited for, what went wrong, or what was found; one sentence.
	Text string        `json:"text,omitempty"`
	Took time.Duration `json:"took,omitempty"` // of an ended step, or of undoing it; without the time before it began
	// Line is of Output: what the machine of the step wrote.
	Line *machinesapi.LogLine `json:"line,omitempty"`
	// Plan is of Running and Whole: the plan was made again, and steps are those of this one from here on.
	Plan *deploy.Plan `json:"plan,omitempty"`
	// Evidence is of Failed, where the step has a machine: it was read before anything is undone.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// State is where a step, or the run, is.
type State string

// The states of a step. The run itself is waiting, running, undoing, and at last done, failed,
// undone or left.
const (
	Waiting State = "waiting" // running, and kept waiting by what Text says: a lease, a server that does not answer, a check that fails
	Running State = "running" // it has begun, or goes on after waiting
	Output  State = "output"  // it still runs, and its machine wrote Line
	Done    State = "done"
	Failed  State = "failed"  // Text says why
	Undoing State = "undoing" // it was done, and what undoes it has begun
	Undone  State = "undone"
	Left    State = "left" // it could not be undone, or was not to be: Text says why
)

// Evidence is what is known of a machine that failed.
type Evidence struct {
	Machine bourse.MachineID      `json:"machine"`
	State   bourse.State          `json:"state,omitempty"`
	Lines   []machinesapi.LogLine `json:"lines,omitempty"`  // the last it wrote, oldest first
	Events  []machinesapi.Event   `json:"events,omitempty"` // newest first
	Checks  []bourse.CheckStatus  `json:"checks,omitempty"`
}
