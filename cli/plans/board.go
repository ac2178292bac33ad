package plans

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
)

// board is what is known of a plan that is carried out: a value that events change. It
// knows no clock and no screen.
type board struct {
	title    string
	plan     *deploy.Plan
	began    time.Time // zero until the first event
	subjects []subject
	of       []int // step → index of its subject
	steps    []run.Event
	first    []time.Time // of each step: when it began
	failed   bool        // a step did, or the run was interrupted, so no other begins
}

func newBoard(title string, p *deploy.Plan) *board {
	b := &board{title: title, plan: p, steps: make([]run.Event, len(p.Steps)), first: make([]time.Time, len(p.Steps))}
	b.subjects, b.of = subjects(p)
	return b
}

// apply notes an event. It returns the subject that it is about, nil when it is about
// none or says nothing new.
func (b *board) apply(e run.Event) *subject {
	if b.began.IsZero() {
		b.began = e.At
	}
	if e.Step == run.Whole {
		b.failed = b.failed || e.State == run.Undoing
		return nil
	}
	if !valid(b.plan, e.Step) {
		return nil
	}
	s := &b.subjects[b.of[e.Step]]
	before := b.steps[e.Step]
	if e.Machine != "" && s.machine == "" {
		if s.machine = e.Machine; s.unnamed && b.plan.Steps[e.Step].Do != deploy.RunCommand {
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

// status is how far a subject has come.
type status struct {
	state run.State
	word  string
	text  string
	began time.Time // zero: it has not
	ended time.Time // zero: it has not
}

// The states of a subject as words, where the act has none.
const (
	waitingWord = "waiting"
	failedWord  = "failed"
	undoingWord = "returning"
	undoneWord  = "returned"
	leftWord    = "left"      // neither new nor as it was
	spareWord   = "untouched" // it waited as something failed
)

// status returns how far a subject has come: what is in progress says more than what went
// wrong, and that more than what went well.
func (b *board) status(s *subject) status {
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
		out.state, out.text = state, e.Text
		switch state {
		case run.Undoing:
			out.word = undoingWord
		case run.Waiting:
			out.word = waitingWord
		case run.Running:
			out.word = wordsOf[b.plan.Steps[e.Step].Do].now
		default: // it has ended
			out.word, out.ended = leftWord, e.At
			if state == run.Undone {
				out.word, out.text = undoneWord, cmp.Or(e.Text, wordsOf[b.plan.Steps[e.Step].Do].undone)
			}
			if hasFailed {
				out.state, out.word, out.text = run.Failed, failedWord+", "+out.word, failed.Text
			}
		}
		return out
	}
	if hasFailed {
		return status{run.Failed, failedWord, failed.Text, out.began, failed.At}
	}
	if last, ok := b.last(s, run.Done); ok && done == len(s.steps) {
		return status{run.Done, b.doneWord(s), last.Text, out.began, last.At}
	}
	if b.failed && out.began.IsZero() {
		out.word = spareWord
	}
	return out
}

// last returns the latest event of a subject in a state.
func (b *board) last(s *subject, state run.State) (out run.Event, ok bool) {
	for _, i := range s.steps {
		if e := b.steps[i]; e.State == state && (!ok || !e.At.Before(out.At)) {
			out, ok = e, true
		}
	}
	return out, ok
}

// doneWord says what a subject has come to.
func (b *board) doneWord(s *subject) string {
	act := s.act
	for _, i := range s.steps {
		do := b.plan.Steps[i].Do
		if do == deploy.DestroyMachine || do == deploy.DestroyVolume {
			return wordsOf[do].done
		}
		if do == deploy.AwaitReady {
			act = do
		}
	}
	return wordsOf[act].done
}

// head is the line above all others.
func (b *board) head(now time.Time) string {
	count := map[run.State]int{}
	for i := range b.subjects {
		count[b.status(&b.subjects[i]).state]++
	}
	line := fmt.Sprintf("%s  %s  %d of %d done", b.title, elapsed(now.Sub(b.began)), count[run.Done], len(b.subjects))
	if n := count[run.Failed]; n > 0 {
		line += fmt.Sprintf(", %d failed", n)
	}
	if n := count[run.Undone]; n > 0 {
		line += fmt.Sprintf(", %d returned", n)
	}
	if n := count[run.Left]; n > 0 {
		line += fmt.Sprintf(", %d left", n)
	}
	return line
}

// screen returns the lines to show on a screen so large: no line of machines is left out
// unless there are more than fit, and then those that have the least to tell. Height
// 0 is no bound.
func (b *board) screen(now time.Time, width, height int, colour bool) []string {
	if b.began.IsZero() {
		return []string{cli.Cut(b.title, max(width, cli.MinWidth))}
	}
	room := len(b.subjects)
	if height > 0 {
		room = max(1, min(room, height-4)) // the head, the header, what is left out, the cursor
	}
	shown := b.shown(room)
	var out bytes.Buffer
	t := cli.NewTable("GROUP", "REGION", "MACHINE", "STATE", "TIME", "").Numbers(4).Narrow(5, 2).Drop(0).Paint(3, toneOf)
	t.Indent = "  "
	for _, i := range shown {
		s := &b.subjects[i]
		st := b.status(s)
		t.Row(dash(s.group), dash(string(s.region)), s.name, st.word, st.time(now), st.text)
	}
	_ = t.Write(cli.Stream{ReadWriter: &out, Width: width, Color: colour}) // into memory
	lines := []string{cli.Cut(b.head(now), max(width, cli.MinWidth))}
	for line := range bytes.Lines(out.Bytes()) {
		lines = append(lines, string(bytes.TrimRight(line, "\n ")))
	}
	if more := len(b.subjects) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

// interest orders states by how much a person wants to see them.
var interest = []run.State{run.Failed, run.Left, run.Undoing, run.Waiting, run.Running, run.Undone, "", run.Done}

// shown returns the subjects to show where there is room for so many, in their order.
func (b *board) shown(room int) []int {
	all := make([]int, len(b.subjects))
	for i := range all {
		all[i] = i
	}
	if room >= len(all) {
		return all
	}
	rank := make([]int, len(all))
	for i := range all {
		rank[i] = slices.Index(interest, b.status(&b.subjects[i]).state)
	}
	slices.SortStableFunc(all, func(x, y int) int { return cmp.Compare(rank[x], rank[y]) })
	all = all[:room]
	slices.Sort(all)
	return all
}

// time shows for how long something is done, or was.
func (s *status) time(now time.Time) string {
	switch {
	case s.began.IsZero():
		return ""
	case s.ended.IsZero():
		return elapsed(now.Sub(s.began))
	}
	return elapsed(s.ended.Sub(s.began))
}

// elapsed shows a time so that it changes each tenth of a second while a person
// looks at it.
func elapsed(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// toneOf colours what a line says anyway.
func toneOf(word string) cli.Tone {
	switch word {
	case failedWord, failedWord + ", " + undoneWord, failedWord + ", " + leftWord, leftWord:
		return cli.Bad
	case waitingWord, spareWord:
		return cli.Quiet
	}
	for _, w := range wordsOf {
		if w.done == word {
			return cli.Good
		}
	}
	return cli.Busy
}

// plain returns the line that tells an event where no screen is drawn over; "" when it
// says nothing that a reader of a log would miss.
func (b *board) plain(s *subject, e run.Event) string {
	st := b.status(s)
	var say string
	switch e.State {
	case run.Waiting:
		say = waitingWord
	case run.Running:
		say = wordsOf[b.plan.Steps[e.Step].Do].now
	case run.Output:
		if e.Line == nil {
			return ""
		}
		say, e.Text = "wrote", e.Line.Text
	case run.Done:
		if st.state != run.Done {
			return ""
		}
		say = st.word + " after " + st.time(e.At)
	case run.Failed:
		say = failedWord + " (" + wordsOf[b.plan.Steps[e.Step].Do].now + ")"
	case run.Undoing:
		return ""
	case run.Undone:
		say = undoneWord + " (" + wordsOf[b.plan.Steps[e.Step].Do].undone + ")"
	case run.Left:
		say = leftWord
	}
	if e.Text != "" {
		say += ": " + e.Text
	}
	line := s.name + ": " + say
	if s.region != "" {
		line = string(s.region) + "  " + line
	}
	if s.group != "" {
		line = s.group + "  " + line
	}
	return fmt.Sprintf("%7s  %s", elapsed(e.At.Sub(b.began)), cli.Clean(line))
}
