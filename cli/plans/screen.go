package plans

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy/run"
)

// screen contains the plans whose progress is shown together.
type screen struct {
	title       string
	total       int // total number of machines, including those of plans that will be added; 0 means the number in the added plans
	severalApps bool
	list        []*planProgress
}

// add adds a plan. If a subject is also part of an earlier plan for the same app, only
// the new plan shows it.
func (x *screen) add(b *planProgress) {
	for _, former := range x.list {
		if former.label == b.label {
			former.hideShared(b)
		}
	}
	x.list = append(x.list, b)
}

// hideShared hides the subjects that are also part of the other plan.
func (b *planProgress) hideShared(other *planProgress) {
	for i := range b.subjects {
		s := &b.subjects[i]
		s.hidden = s.hidden || s.id() != "" && slices.ContainsFunc(other.subjects, func(o subject) bool { return o.id() == s.id() })
	}
}

// id returns the id of a subject's existing machine, or "" if the machine does not exist
// yet.
func (s *subject) id() bourse.MachineID { return cmp.Or(s.former, s.machine) }

// row is a subject and its progress.
type row struct {
	app string
	*subject
	status
}

func (x *screen) rows() (out []row) {
	for _, b := range x.list {
		for i := range b.subjects {
			if s := &b.subjects[i]; !s.hidden {
				out = append(out, row{b.label, s, b.status(s)})
			}
		}
	}
	return out
}

// began returns the time of the first event, or the zero time if no event has arrived yet.
func (x *screen) began() (t time.Time) {
	for _, b := range x.list {
		if t.IsZero() || !b.began.IsZero() && b.began.Before(t) {
			t = b.began
		}
	}
	return t
}

// head returns the first line of the screen.
func (x *screen) head(rows []row, now time.Time) string {
	count := map[run.State]int{}
	for i := range rows {
		count[rows[i].state]++
	}
	line := fmt.Sprintf("%s  %s  %d of %d done", x.title, elapsed(now.Sub(x.began())), count[run.Done], max(x.total, len(rows)))
	if n := count[run.Failed]; n > 0 {
		line += fmt.Sprintf(", %d failed", n)
	}
	if n := count[run.Undone]; n > 0 {
		line += fmt.Sprintf(", %d undone", n)
	}
	if n := count[run.Left]; n > 0 {
		line += fmt.Sprintf(", %d left", n)
	}
	return line
}

// progress formats how many subjects are done, for example " (3 of 7)". It returns ""
// unless the screen shows several apps and the event completes a subject.
func (x *screen) progress(b *planProgress, s *subject, e *run.Event) string {
	if !x.severalApps || e.State != run.Done || b.status(s).state != run.Done {
		return ""
	}
	rows := x.rows()
	done := 0
	for i := range rows {
		if rows[i].state == run.Done {
			done++
		}
	}
	return fmt.Sprintf(" (%d of %d)", done, max(x.total, len(rows)))
}

// screen returns the lines for a screen of the given size; a height of 0 means no limit. If
// there are too many rows, it omits the least interesting ones.
func (x *screen) screen(now time.Time, width, height int, color bool) []string {
	width = max(width, cli.MinWidth)
	if x.began().IsZero() {
		return []string{cli.Cut(x.title, width)}
	}
	rows := x.rows()
	room := len(rows)
	if height > 0 {
		room = max(1, min(room, height-4)) // 4 lines remain for the head, the table's header, the omitted rows and the cursor
	}
	t := cli.NewTable("APP", "GROUP", "REGION", "MACHINE", "STATE", "TIME", "").Numbers(5).Narrow(6, 3).Drop(1).Paint(4, toneOf)
	if !x.severalApps {
		t.Hide(0)
	}
	t.Indent = "  "
	for _, i := range visibleRows(rows, room) {
		r := &rows[i]
		t.Row(r.app, dash(r.group), dash(string(r.region)), r.name, r.word, r.time(now), r.text)
	}
	var out bytes.Buffer
	_ = t.Write(cli.Stream{ReadWriter: &out, Width: width, Color: color}) // writes to memory cannot fail
	lines := []string{cli.Cut(x.head(rows, now), width)}
	for line := range bytes.Lines(out.Bytes()) {
		lines = append(lines, string(bytes.TrimRight(line, "\n ")))
	}
	if more := len(rows) - room; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

// stateOrder lists the states of rows from the most to the least interesting.
var stateOrder = []run.State{run.Failed, run.Left, run.Undoing, run.Waiting, run.Running, run.Undone, "", run.Done}

// visibleRows returns the indexes of the rows to show, in ascending order.
func visibleRows(rows []row, room int) []int {
	all := make([]int, len(rows))
	for i := range all {
		all[i] = i
	}
	if room >= len(all) {
		return all
	}
	slices.SortStableFunc(all, func(a, b int) int {
		return cmp.Compare(slices.Index(stateOrder, rows[a].state), slices.Index(stateOrder, rows[b].state))
	})
	all = all[:room]
	slices.Sort(all)
	return all
}
