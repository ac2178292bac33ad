package plans

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
)

// planProgress tracks the progress of a plan. It depends only on the events that it receives, not on a
// clock or a screen.
type planProgress struct {
	label    string // name of the app if several plans are shown; otherwise ""
	plan     *deploy.Plan
	began    time.Time // time of the first event; zero until it arrives
	subjects []subject
	of       []int       // for each step, the index of its subject
	steps    []run.Event // last event of each step
	first    []time.Time // time of each step's first event
	failed   bool        // a step has failed or the run was interrupted, so no further step begins
}

func newPlanProgress(label string, p *deploy.Plan) *planProgress {
	b := &planProgress{label: label, plan: p, steps: make([]run.Event, len(p.Steps)), first: make([]time.Time, len(p.Steps))}
	b.subjects, b.of = subjects(p)
	return b
}

// apply records an event and returns the subject of the event's step. It returns nil if the step
// has no subject, or if the event does not change anything.
func (b *planProgress) apply(e run.Event) *subject {
	if b.began.IsZero() {
		b.began = e.At
	}
	if e.Step == run.WholeRun {
		b.failed = b.failed || e.State == run.Undoing
	}
	if !b.hasStep(e.Step) {
		return nil
	}
	e.Text = b.short(&e)
	s := &b.subjects[b.of[e.Step]]
	before := b.steps[e.Step]
	if e.Machine != "" && s.machine == "" && e.Machine != s.former {
		if s.machine = e.Machine; s.unnamed && !deploy.Is[deploy.RunCommand](b.plan.Steps[e.Step].Do) {
			s.name = string(e.Machine)
		}
	}
	if e.State == run.Output {
		return s
	}
	b.steps[e.Step] = e
	if b.first[e.Step].IsZero() {
		b.first[e.Step] = e.At
	}
	b.failed = b.failed || e.State == run.Failed || e.State == run.Undoing
	if before.State == e.State && before.Text == e.Text {
		return nil
	}
	return s
}

// hasStep reports whether the plan has a step with this index. Events for unknown steps are
// ignored.
func (b *planProgress) hasStep(step int) bool { return 0 <= step && step < len(b.steps) }

// status is a subject's progress.
type status struct {
	state run.State
	word  string
	text  string
	began time.Time // zero if no step has begun
	ended time.Time // zero if the steps have not ended
}

// Words that describe a subject's state.
const (
	waitingWord = "waiting"
	failedWord  = "failed"
	undoingWord = "undoing"
	undoneWord  = "undone"
	leftWord    = "left"      // the change could not be undone
	spareWord   = "untouched" // none of its steps had begun when another step failed

	replacedWord = "replaced"
	movedWord    = "moved"
)

// status returns a subject's progress. If its steps are in different states, steps in
// progress take precedence over failed ones, and failed ones over finished ones.
func (b *planProgress) status(s *subject) status {
	out := b.progress(s)
	if s.former != "" && out.state == run.Done {
		out.text = "by " + string(s.machine)
	}
	return out
}

// progress returns a subject's progress according to the events received so far.
func (b *planProgress) progress(s *subject) status {
	out := status{state: "", word: waitingWord}
	done := 0
	for _, i := range s.steps {
		if t := b.first[i]; !t.IsZero() && (out.began.IsZero() || t.Before(out.began)) {
			out.began = t
		}
		if b.steps[i].State == run.Done {
			done++
		}
	}
	failed, hasFailed := b.last(s, run.Failed)
	for _, state := range []run.State{run.Undoing, run.Waiting, run.Running, run.Left, run.Undone} {
		e, ok := b.last(s, state)
		if !ok {
			continue
		}
		out.state, out.text = state, b.text(s, &e)
		switch state {
		case run.Undoing:
			out.word = undoingWord
		case run.Waiting:
			out.word = waitingWord
		case run.Running:
			out.word = wordsOf(b.plan.Steps[e.Step].Do).now
		default: // the change was undone, or could not be undone
			out.word, out.ended = leftWord, e.At
			if state == run.Undone {
				e.Text = cmp.Or(e.Text, wordsOf(b.plan.Steps[e.Step].Do).undone)
				out.word, out.text = undoneWord, b.text(s, &e)
			}
			if hasFailed {
				out.state, out.word, out.text = run.Failed, failedWord+", "+out.word, b.text(s, &failed)
			}
		}
		return out
	}
	if hasFailed {
		return status{run.Failed, failedWord, b.text(s, &failed), out.began, failed.At}
	}
	if last, ok := b.last(s, run.Done); ok && done == len(s.steps) {
		return status{run.Done, b.doneWord(s), last.Text, out.began, last.At}
	}
	if b.failed && out.began.IsZero() {
		out.word = spareWord
	}
	return out
}

// text returns an event's text. If the event is about the replacement of the subject's machine,
// the result mentions the replacement, unless the event's own text suffices.
func (b *planProgress) text(s *subject, e *run.Event) string {
	if !b.ofReplacement(s, e.Step) {
		return e.Text
	}
	switch {
	case e.Text == "":
		return "its replacement"
	case e.State == run.Undone:
		return "its replacement is " + e.Text
	}
	return e.Text
}

// short returns an event's text. It omits the action and the machine, which the row already shows.
func (b *planProgress) short(e *run.Event) string {
	if e.State != run.Failed || !b.hasStep(e.Step) {
		return e.Text
	}
	if rest, ok := strings.CutPrefix(e.Text, b.plan.Steps[e.Step].Do.String()+" "); ok {
		if _, why, ok := strings.Cut(rest, ": "); ok {
			return why
		}
	}
	return e.Text
}

// ofReplacement reports whether a step is about the replacement of a subject's machine.
func (b *planProgress) ofReplacement(s *subject, step int) bool {
	do, machine := b.plan.Steps[step].Do, b.plan.Steps[step].Machine
	return s.former != "" && machine != s.former && !deploy.Is[deploy.AwaitProxies](do) && !deploy.Is[deploy.DestroyVolume](do)
}

// last returns a subject's latest event with the given state.
func (b *planProgress) last(s *subject, state run.State) (out run.Event, ok bool) {
	for _, i := range s.steps {
		if e := b.steps[i]; e.State == state && (!ok || !e.At.Before(out.At)) {
			out, ok = e, true
		}
	}
	return out, ok
}

// doneWord returns the word for a subject whose steps are all done.
func (b *planProgress) doneWord(s *subject) string {
	if s.former != "" && b.plan.What == "move" {
		return movedWord
	}
	if s.former != "" {
		return replacedWord
	}
	out := s.do
	for _, i := range s.steps {
		step := &b.plan.Steps[i]
		if step.Destroys() {
			return wordsOf(step.Do).done
		}
		if deploy.Is[deploy.AwaitReady](step.Do) {
			out = step.Do
		}
	}
	return wordsOf(out).done
}

// time formats how long the subject's steps have taken so far, or took in total.
func (s *status) time(now time.Time) string {
	switch {
	case s.began.IsZero():
		return ""
	case s.ended.IsZero():
		return elapsed(now.Sub(s.began))
	}
	return elapsed(s.ended.Sub(s.began))
}

// elapsed formats a duration. Below a minute it shows tenths of a second, so that the user
// sees it change.
func elapsed(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// toneOf returns the color for a subject's status word.
func toneOf(word string) cli.Tone {
	switch word {
	case failedWord, failedWord + ", " + undoneWord, failedWord + ", " + leftWord, leftWord:
		return cli.Bad
	case waitingWord, spareWord:
		return cli.Muted
	case replacedWord, movedWord:
		return cli.Good
	}
	for _, w := range actions {
		if w.done == word {
			return cli.Good
		}
	}
	return cli.InTransition
}

// plain formats an event as a line of text, for output that is not a terminal. began is
// when the plan began; the line starts with the time elapsed since then. plain returns
// "" for events that are not worth a line in a log.
func (b *planProgress) plain(s *subject, e run.Event, began time.Time) string {
	st := b.status(s)
	var say string
	switch e.State {
	case run.Waiting:
		say = waitingWord
	case run.Running:
		say = wordsOf(b.plan.Steps[e.Step].Do).now
	case run.Output:
		if e.Line == nil {
			return ""
		}
		say, e.Text = "wrote", e.Line.Text
	case run.Done:
		if st.state != run.Done {
			return ""
		}
		say, e.Text = st.word+" after "+st.time(e.At), cmp.Or(e.Text, st.text)
	case run.Failed:
		say = failedWord + " (" + wordsOf(b.plan.Steps[e.Step].Do).now + ")"
	case run.Undoing:
		return ""
	case run.Undone:
		say = undoneWord + " (" + wordsOf(b.plan.Steps[e.Step].Do).undone + ")"
	case run.Left:
		say = leftWord
	}
	if e.Text != "" {
		say += ": " + e.Text
	}
	line := s.name + ": " + say
	if b.ofReplacement(s, e.Step) && e.State != run.Done {
		line = "replacement of " + line
	}
	if s.region != "" {
		line = string(s.region) + "  " + line
	}
	if s.group != "" {
		line = s.group + "  " + line
	}
	if b.label != "" {
		line = b.label + "  " + line
	}
	return fmt.Sprintf("%7s  %s", elapsed(e.At.Sub(began)), cli.Clean(line))
}
