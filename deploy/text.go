package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Summary is how many machines a plan changes, and how.
type Summary struct {
	Create  int `json:"create"`  // without canaries and machines of commands
	Update  int `json:"update"`  // to another config, in place
	Replace int `json:"replace"` // by a machine that is made; neither created nor destroyed are these
	Restart int `json:"restart"`
	Destroy int `json:"destroy"`
	Finish  int `json:"finish"` // as they are wanted already; what an interrupted plan left to do is done
	Volumes int `json:"volumes"`
	Refused int `json:"refused"`
}

// change is what a plan does with one machine.
type change struct {
	group string
	in    bourse.Region
	kind  kind
	name  string // of the machine; "" of one that is made
	why   string
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
	destroy
)

var kindWords = map[kind]string{
	command: "run", canary: "try", create: "create", update: "update", replace: "replace", restart: "restart", finish: "finish", destroy: "destroy",
}

// changes returns what the plan does with each machine, once, in order of groups,
// regions and kinds.
func (p *Plan) changes() []change {
	var out []change
	said := map[bourse.MachineID]bool{}
	for i := range p.Steps {
		if c, ok := p.change(&p.Steps[i], said); ok {
			out = append(out, c)
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case s.Machine == "" || said[s.Machine]:
			continue
		case s.Do == DestroyMachine:
			out = append(out, p.changed(s, destroy))
		case s.Do == AwaitReady || s.Do == UncordonMachine || s.Do == StartMachine || s.Do == SetMetadata:
			if p.destroyed(s.Machine) {
				continue
			}
			out = append(out, p.changed(s, finish))
		default:
			continue
		}
		said[s.Machine] = true
	}
	slices.SortStableFunc(out, func(a, b change) int {
		return cmp.Or(-order(a.kind == command, b.kind == command), cmp.Compare(a.group, b.group), cmp.Compare(a.in, b.in), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return out
}

// change is what a step that makes or changes a machine says of it.
func (p *Plan) change(s *Step, said map[bourse.MachineID]bool) (change, bool) {
	switch s.Do {
	case RunCommand:
		return p.changed(s, command), true
	case MakeMachine:
		if s.Config != nil && s.Config.Metadata[KeyCanary] != "" {
			return p.changed(s, canary), true
		}
		if s.Config != nil {
			if old := bourse.MachineID(s.Config.Metadata[KeyReplaces]); old != "" {
				said[old] = true
				c := p.changed(s, replace)
				c.name = p.nameOf(old)
				return c, true
			}
		}
		return p.changed(s, create), true
	case UpdateMachine, RestartMachine:
		said[s.Machine] = true
		k := update
		if s.Do == RestartMachine {
			k = restart
		}
		return p.changed(s, k), true
	default:
		return change{}, false
	}
}

func (p *Plan) changed(s *Step, k kind) change {
	return change{s.Group, s.In, k, p.nameOf(s.Machine), s.Why}
}

func (p *Plan) destroyed(id bourse.MachineID) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == DestroyMachine && s.Machine == id })
}

func (p *Plan) nameOf(id bourse.MachineID) string { return named(id, p.Seen[id].Name) }

// Summary counts what the plan does.
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
		case destroy:
			out.Destroy++
		case finish:
			out.Finish++
		case command, canary:
		}
	}
	for i := range p.Steps {
		if p.Steps[i].Do == MakeVolume {
			out.Volumes++
		}
	}
	return out
}

// String is the summary in one line: "2 to create, 3 to update"; "nothing to do".
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

// Text is the plan for a reader, in lines of at most width columns where words allow
// it; 0 means 80. It is the same for the same plan, and ends with a newline.
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

// groups writes what is done in each group and region, with machines that have the
// same reason together.
func (p *Plan) groups(t *text) {
	type place struct {
		group string
		in    bourse.Region
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
		if next := (place{c.group, c.in}); next != at {
			at = next
			t.line(2, "region "+cmp.Or(string(c.in), "of the API's choice"))
		}
		t.line(3, fmt.Sprintf("%s %d: %s", kindWords[c.kind], same, c.why))
		if len(names) > 0 {
			t.line(4, strings.Join(bounded(names, maxNames), ", "))
		}
	}
}

func (c change) alike(d change) bool {
	return c.group == d.group && c.in == d.in && c.kind == d.kind && c.why == d.why
}

// namesOf returns the names of machines that have one.
func namesOf(list []change) []string {
	names := map[string]bool{}
	for _, c := range list {
		if c.name != "" {
			names[c.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Bounds of what a text lists: the first so many, then how many more there are. A plan's
// JSON has them all.
const (
	maxNames = 10 // machines that the same is done to, for the same reason
	maxLines = 20 // warnings, or refusals
)

// bounded returns the first of a list and, where there are others, how many.
func bounded(list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// text is lines of at most width columns.
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

// line writes words, broken where they are too many; what follows a break is one step
// further in.
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

// clean takes out what a terminal would act on: texts of a plan come from machines and
// from files.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
