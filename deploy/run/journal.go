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

// journal records what a run has done: what undoing needs to know, and what the result reports. It may be used by
// several goroutines.
type journal struct {
	mu       sync.Mutex
	plan     *deploy.Plan
	steps    []progress
	versions map[bourse.MachineID]version  // the last ones that this run has made
	lines    map[int][]machinesapi.LogLine // the last output of commands, by step
	first    error                         // of the step that failed first
	failures []Evidence
	silent   map[string]bool // proxies
}

// progress is the progress of one step.
type progress struct {
	state    State
	took     time.Duration
	text     string
	machine  bourse.MachineID  // made by the step
	volume   bourse.VolumeID   // made by the step
	order    bourse.OrderID    // of what the step makes
	sent     bool              // a request that changes something was sent
	unknown  bool              // the outcome of such a request is unknown
	already  bool              // the step found the machine as it was to make it, so that there is nothing to undo
	instance bourse.InstanceID // the version that the step replaces
	ready    version           // the machine when it was found ready
	undo     error             // why the step could not be undone
}

// version identifies one start of one version of a machine.
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

// use replaces the plan. No step has begun.
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

// machine returns the machine that a step acts on or makes, "" if it is not made yet.
func (j *journal) machine(i int) bourse.MachineID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.machineOf(i)
}

// machineOf is machine for callers that hold mu.
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

// made records the version that this run has made of a machine.
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

// wrote records a line of output of a step's machine.
func (j *journal) wrote(i int, line machinesapi.LogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[i] = lastLines(append(j.lines[i], line))
}

// output returns the last lines of output of a step's machine.
func (j *journal) output(i int) []machinesapi.LogLine {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[i])
}

// silence records proxies that did not learn about changes in time.
func (j *journal) silence(proxies []string) {
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

// failedWith records the evidence of a failure.
func (j *journal) failedWith(e Evidence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = append(j.failures, e)
}

// failure returns the error of the step that failed first.
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

// result returns the result of a run that ended with err. Overtaken is set if another client has overtaken it.
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
			left.Next = fmt.Sprintf("bourse status --app %s, to see what the other client has made of it", j.plan.App)
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

// leftover describes what a step has left neither as it was nor as planned, "" if nothing. It is called with mu held.
func (j *journal) leftover(i int) string {
	s, p := &j.plan.Steps[i], &j.steps[i]
	switch s.Do.(type) {
	case deploy.RunCommand:
		if p.undo != nil {
			return "the command's machine was not destroyed: " + why(p.undo)
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
		return fmt.Sprintf("%s was not undone: %s", s.Do, why(p.undo))
	case p.state == Done && !p.already:
		return fmt.Sprintf("%s was done, and is not undone", s.Do)
	case p.state == Failed && p.sent && (p.unknown || deploy.Is[deploy.UpdateMachine](s.Do) || p.machine != "" || p.volume != ""):
		return fmt.Sprintf("%s was begun, and is not undone: %s", s.Do, p.text)
	}
	return ""
}

// why returns the text of an error, "" for nil.
func why(err error) string {
	if err == nil {
		return ""
	}
	return bourse.MessageOf(err)
}
