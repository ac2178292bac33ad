package run

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// journal records a run's actions, so that they can be undone and reported. It is safe for concurrent use.
type journal struct {
	mu       sync.Mutex
	plan     *deploy.Plan
	steps    []progress
	versions map[bourse.MachineID]version  // latest version of each machine that this run created or updated
	lines    map[int][]machinesapi.LogLine // last lines of output, by step
	first    error                         // error of the step that failed first
	failures []Evidence
	silent   map[string]bool // proxies that did not receive changes in time
}

// progress records what one step has done so far.
type progress struct {
	state     State
	took      time.Duration
	text      string
	machine   bourse.MachineID  // machine that the step created
	volume    bourse.VolumeID   // volume that the step created
	order     bourse.OrderID    // id of the order for the machine or volume
	sent      bool              // a request that changes something has been sent
	unknown   bool              // the outcome of such a request is unknown
	unchanged bool              // the machine was already in the step's target state, so there is nothing to undo
	instance  bourse.InstanceID // version of the machine before the step
	ready     version           // version of the machine when it was found ready
	undo      error             // reason why the step could not be undone
}

// version identifies a version of a machine's config, and the machine's latest start.
type version struct {
	instance bourse.InstanceID
	starts   int
}

func versionOf(m *machinesapi.Machine) version { return version{m.InstanceID, m.Starts} }

func newJournal(p *deploy.Plan) *journal {
	return &journal{
		plan: p, steps: make([]progress, len(p.Steps)), versions: map[bourse.MachineID]version{},
		lines: map[int][]machinesapi.LogLine{}, silent: map[string]bool{},
	}
}

// use replaces the plan. It must be called before the first step begins.
func (j *journal) use(p *deploy.Plan) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.plan, j.steps = p, make([]progress, len(p.Steps))
}

func (j *journal) change(i int, f func(*progress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.steps[i])
}

func (j *journal) get(i int) progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.steps[i]
}

// machine returns the machine that a step acts on or creates, or "" if the machine has not
// been created yet.
func (j *journal) machine(i int) bourse.MachineID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.machineOf(i)
}

// machineOf implements machine. The caller must hold mu.
func (j *journal) machineOf(i int) bourse.MachineID {
	s := &j.plan.Steps[i]
	switch {
	case s.Machine != "":
		return s.Machine
	case s.MadeBy != nil:
		return j.steps[*s.MadeBy].machine
	}
	return j.steps[i].machine
}

// made records the current version of a machine that this run has created or updated.
func (j *journal) made(m *machinesapi.Machine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.versions[m.ID] = versionOf(m)
}

func (j *journal) version(id bourse.MachineID) version {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.versions[id]
}

// addOutput records a line of output from a step's machine.
func (j *journal) addOutput(i int, line machinesapi.LogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[i] = lastLines(append(j.lines[i], line))
}

// output returns the last recorded lines of output from a step's machine.
func (j *journal) output(i int) []machinesapi.LogLine {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[i])
}

// addSilent records proxies that did not receive changes in time.
func (j *journal) addSilent(proxies []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range proxies {
		j.silent[name] = true
	}
}

func (j *journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		j.first = err
	}
}

// failedWith records evidence about a machine that failed.
func (j *journal) failedWith(e Evidence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = append(j.failures, e)
}

// failure returns the error of the step that failed first, or nil.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first
}

// complete reports whether every step is done.
func (j *journal) complete() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !slices.ContainsFunc(j.steps, func(p progress) bool { return p.state != Done })
}

// result returns the run's result. err is the error that ended the run, or nil. overtaken reports whether another
// client has taken over the machines. resumed reports whether an earlier run began the release.
func (j *journal) result(err error, overtaken, resumed bool) Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := Result{Plan: *j.plan, Status: release.Complete, Steps: make([]Outcome, len(j.steps)), Failed: j.failures, Silent: slices.Sorted(maps.Keys(j.silent))}
	for i := range j.steps {
		p := &j.steps[i]
		out.Steps[i] = Outcome{Step: i, State: p.state, Machine: p.machine, Volume: p.volume, Took: p.took, Text: p.text}
		if out.Steps[i].Machine == "" {
			out.Steps[i].Machine = j.plan.Steps[i].Machine
		}
		left := Leftover{Step: i, Machine: j.machineOf(i), Volume: p.volume, What: j.leftover(i)}
		_, command := j.plan.Steps[i].Do.(deploy.RunCommand)
		switch {
		case left.What == "" || err == nil && !command:
			continue
		case overtaken:
			left.Next = fmt.Sprintf("bourse status --app %s, to see what the other client has done", j.plan.App)
		case command:
			left.Next = fmt.Sprintf("bourse machine destroy --app %s --force %s", j.plan.App, left.Machine)
		default:
			left.Next = fmt.Sprintf("bourse deploy --resume --app %s, to continue; or bourse rollback --app %s", j.plan.App, j.plan.App)
		}
		out.Left = append(out.Left, left)
	}
	if err != nil {
		if out.Status = release.Failed; len(out.Left) > 0 || resumed {
			out.Status = release.Interrupted
		}
	}
	return out
}

// leftover describes a step's change if it was begun or completed, but not undone. If there is no such change, leftover
// returns "". The caller must hold mu.
func (j *journal) leftover(i int) string {
	s, p := &j.plan.Steps[i], &j.steps[i]
	switch s.Do.(type) {
	case deploy.RunCommand:
		if p.undo != nil {
			return "the command's machine was not destroyed: " + errorText(p.undo)
		}
		return ""
	case deploy.AwaitReady, deploy.RestartMachine, deploy.AwaitProxies:
		return ""
	case deploy.DestroyMachine:
		if s.MadeBy != nil {
			return ""
		}
	}
	switch {
	case p.state == Left:
		return fmt.Sprintf("%s was not undone: %s", s.Do, errorText(p.undo))
	case p.state == Done && !p.unchanged:
		return fmt.Sprintf("%s was done but not undone", s.Do)
	case p.state == Failed && p.sent && (p.unknown || deploy.Is[deploy.UpdateMachine](s.Do) || p.machine != "" || p.volume != ""):
		return fmt.Sprintf("%s was started but not undone: %s", s.Do, p.text)
	}
	return ""
}

// errorText returns err's message, or "" if err is nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return bourse.MessageOf(err)
}
