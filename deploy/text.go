package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Summary counts the machines that a plan changes.
type Summary struct {
	Create  int // new machines, except canaries and machines that run release commands
	Update  int // machines that are updated in place
	Replace int // machines that are replaced by new ones; counted neither in Create nor in Destroy
	Restart int
	Destroy int
	Finish  int // machines that need only the remaining steps of an interrupted plan
	Refused int // number of reasons for a refusal, not of machines
}

// change describes a plan's change to one machine.
type change struct {
	group  string
	region bourse.Region
	kind   kind
	name   string // name of the machine; "" for a new one
	why    string
}

type kind int

const (
	command kind = iota
	canary
	create
	update
	replace
	restart
	finish
	destroyed
)

var kindWords = map[kind]string{
	command: "run", canary: "try", create: "create", update: "update", replace: "replace", restart: "restart", finish: "finish", destroyed: "destroy",
}

// changes returns the plan's changes to each machine, sorted by group, region and kind.
func (p *Plan) changes() []change {
	var out []change
	listed := map[bourse.MachineID]bool{"": true}
	add := func(s *Step, k kind, m bourse.MachineID) {
		listed[m] = true
		out = append(out, change{s.Group, s.Region, k, p.nameOf(m), s.Why})
	}
	for i := range p.Steps { // prefer these steps, because they best describe the change to a machine
		switch s := &p.Steps[i]; do := s.Do.(type) {
		case RunCommand:
			add(s, command, "")
		case MakeMachine:
			switch {
			case do.Config.Metadata[KeyCanary] != "":
				add(s, canary, "")
			case s.Replaces() != "":
				add(s, replace, s.Replaces())
			default:
				add(s, create, "")
			}
		case UpdateMachine:
			add(s, update, s.Machine)
		case RestartMachine:
			add(s, restart, s.Machine)
		}
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; Is[DestroyMachine](s.Do) && !listed[s.Machine] {
			add(s, destroyed, s.Machine)
		}
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; !listed[s.Machine] && (Is[AwaitReady](s.Do) || Is[UncordonMachine](s.Do) || Is[StartMachine](s.Do) || Is[SetMetadata](s.Do)) {
			add(s, finish, s.Machine)
		}
	}
	slices.SortStableFunc(out, func(a, b change) int {
		return cmp.Or(-compareBools(a.kind == command, b.kind == command), cmp.Compare(a.group, b.group), cmp.Compare(a.region, b.region), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return out
}

func (p *Plan) nameOf(id bourse.MachineID) string { return named(id, p.Seen[id].Name) } // returns "" if id is ""

// Summary counts the plan's changes.
func (p *Plan) Summary() Summary {
	out := Summary{Refused: len(p.Refused)}
	for _, c := range p.changes() {
		switch c.kind {
		case create:
			out.Create++
		case update:
			out.Update++
		case replace:
			out.Replace++
		case restart:
			out.Restart++
		case destroyed:
			out.Destroy++
		case finish:
			out.Finish++
		case command, canary:
		}
	}
	return out
}

// String formats the summary on one line, such as "2 to create, 3 to update" or "nothing to do".
func (s Summary) String() string {
	var out []string
	for _, n := range []struct {
		count int
		what  string
	}{
		{s.Create, "to create"},
		{s.Update, "to update"},
		{s.Replace, "to replace"},
		{s.Restart, "to restart"},
		{s.Finish, "to finish"},
		{s.Destroy, "to destroy"},
		{s.Refused, "refused"},
	} {
		if n.count > 0 {
			out = append(out, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if len(out) == 0 {
		return "nothing to do"
	}
	return strings.Join(out, ", ")
}

// Text describes the plan in lines of at most width columns; 0 means 80 columns. Words are not broken, even if they
// are longer than a line. The text ends with a newline.
func (p *Plan) Text(width int) string {
	if width <= 0 {
		width = 80
	}
	t := &text{width: max(width, 20)}
	head := "app " + string(p.App)
	if p.What != "" {
		head += ", " + p.What
	}
	t.line(0, head)
	p.groups(t)
	t.list("refused:", p.Refused)
	t.list("warnings:", p.Warnings)
	t.line(0, p.Summary().String())
	return clean(t.out.String())
}

// groups writes the changes in each group and region. Machines with the same change and
// reason share a line.
func (p *Plan) groups(t *text) {
	type place struct {
		group  string
		region bourse.Region
	}
	group, at := "", place{}
	list := p.changes()
	for len(list) > 0 {
		c := list[0]
		same := 1
		for same < len(list) && list[same].alike(c) {
			same++
		}
		names := namesOf(list[:same])
		list = list[same:]
		if c.kind == command {
			t.line(1, c.why)
			continue
		}
		if c.group != group {
			group = c.group
			t.line(1, "group "+group)
		}
		if next := (place{c.group, c.region}); next != at {
			at = next
			t.line(2, "region "+cmp.Or(string(c.region), "chosen by the API"))
		}
		t.line(3, fmt.Sprintf("%s %d: %s", kindWords[c.kind], same, c.why))
		if len(names) > 0 {
			t.line(4, strings.Join(bounded(names, maxNames), ", "))
		}
	}
}

func (c change) alike(d change) bool {
	return c.group == d.group && c.region == d.region && c.kind == d.kind && c.why == d.why
}

// namesOf returns the sorted names of the existing machines in list.
func namesOf(list []change) []string {
	names := map[string]bool{}
	for _, c := range list {
		if c.name != "" {
			names[c.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Limits on the number of items that a plan's text lists. The plan's JSON contains all items.
const (
	maxNames = 10 // machines on one line
	maxLines = 20 // warnings or refusals
)

// bounded shortens a list to the given number of items. If it omits any items, it appends their number, as in "and 3
// more".
func bounded(list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// text collects lines of at most width columns.
type text struct {
	width int
	out   strings.Builder
}

func (t *text) list(head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.line(0, head)
	for _, l := range bounded(lines, maxLines) {
		t.line(1, l)
	}
}

// line writes words as a line, and wraps the line where it would become too long. Continuation lines are indented by
// one more level.
func (t *text) line(depth int, words string) {
	const step = "  "
	indent := strings.Repeat(step, depth)
	at := 0
	for word := range strings.FieldsSeq(words) {
		n := len([]rune(word))
		switch {
		case at == 0:
			t.out.WriteString(indent)
			at = len(indent)
		case at+1+n > t.width:
			t.out.WriteString("\n" + indent + step)
			at = len(indent) + len(step)
		default:
			t.out.WriteByte(' ')
			at++
		}
		t.out.WriteString(word)
		at += n
	}
	t.out.WriteByte('\n')
}

// clean replaces control characters, because parts of a plan's text come from machines and
// files.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
