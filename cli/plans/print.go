package plans

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
)

// listed bounds the lines of a plan that is printed; of a longer one, machines that
// have the same done to them for the same reason share one.
const listed = 40

// silent are the acts that a plan is not printed for: they go with others.
var silent = []deploy.Act{deploy.AwaitReady, deploy.AwaitProxies}

// Print prints a plan: what is done to which machine and why, whether it would fit, and
// what a reader should know. title says what it is of.
func Print(s *cli.Shell, title string, p *deploy.Plan, fits []Fit) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", cli.Clean(title), Changes(p))
	if _, err := io.WriteString(s.Out, b.String()); err != nil {
		return err
	}
	width, _ := s.Out.Size()
	t := cli.NewTable("GROUP", "REGION", "DO", "MACHINE", "WHY").Narrow(3)
	list, _ := subjects(p)
	list = slices.DeleteFunc(list, func(x subject) bool { return slices.Contains(silent, x.act) })
	for _, row := range broken(planRows(list), width) {
		t.Row(row...)
	}
	if !t.Empty() {
		fmt.Fprintln(s.Out)
		if err := t.Write(s.Out); err != nil {
			return err
		}
	}
	lines := make([]string, 0, len(fits)+len(p.Warnings)+len(p.Refused))
	for i := range fits {
		lines = append(lines, fits[i].lines()...)
	}
	for _, w := range p.Warnings {
		lines = append(lines, "warning: "+w)
	}
	for _, r := range p.Refused {
		lines = append(lines, "refused: "+r)
	}
	if len(lines) > 0 {
		fmt.Fprintln(s.Out)
	}
	for _, line := range lines {
		for _, part := range wrap(cli.Clean(line), width) {
			if _, err := fmt.Fprintln(s.Out, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func planRows(list []subject) [][]string {
	cells := func(s *subject, machine string) []string {
		do := wordsOf[s.act].plan
		if s.canary {
			do += " canary"
		}
		return []string{dash(s.group), dash(string(s.region)), do, machine, s.why}
	}
	var rows [][]string
	if len(list) <= listed {
		for i := range list {
			rows = append(rows, cells(&list[i], list[i].name))
		}
		return rows
	}
	type alike struct {
		group, region, why string
		act                deploy.Act
		canary             bool
	}
	var order []alike
	count := map[alike]int{}
	first := map[alike]*subject{}
	for i := range list {
		s := &list[i]
		k := alike{s.group, string(s.region), s.why, s.act, s.canary}
		if count[k]++; count[k] == 1 {
			order = append(order, k)
			first[k] = s
		}
	}
	for _, k := range order {
		name := first[k].name
		if n := count[k]; n > 1 {
			name = fmt.Sprintf("%d machines", n)
		}
		rows = append(rows, cells(first[k], name))
	}
	return rows
}

// leastWhy is the width of the reasons below which they are not broken into lines.
const leastWhy = 16

// broken breaks the last cell of rows into lines, each a row, so that they fit on so
// many columns.
func broken(rows [][]string, width int) [][]string {
	if width == 0 || len(rows) == 0 {
		return rows
	}
	last := len(rows[0]) - 1
	for column := range last {
		widest := len("REGION")
		for _, row := range rows {
			widest = max(widest, len([]rune(row[column])))
		}
		width -= widest + len(cli.ColumnGap)
	}
	var out [][]string
	for _, row := range rows {
		for i, part := range wrap(cli.Clean(row[last]), max(width, leastWhy)) {
			line := make([]string, last+1)
			if i == 0 {
				copy(line, row)
			}
			line[last] = part
			out = append(out, line)
		}
	}
	return out
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Changes counts what a plan does: "1 to make, 2 to update".
func Changes(p *deploy.Plan) string {
	return count(p, func(n int, w words) string { return fmt.Sprintf("%d to %s", n, w.plan) }, "nothing to do")
}

// count counts the subjects of a plan by act, in words.
func count(p *deploy.Plan, say func(n int, w words) string, none string) string {
	list, _ := subjects(p)
	count := map[deploy.Act]int{}
	for i := range list {
		count[list[i].act]++
	}
	var parts []string
	for _, act := range slices.Backward(weights) {
		if n := count[act]; n > 0 && !slices.Contains(silent, act) {
			parts = append(parts, say(n, wordsOf[act]))
		}
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}

// wrap breaks a line between words so that it fits on so many columns; what follows the
// first is indented. 0 columns break nothing.
func wrap(line string, width int) []string {
	const indent = "  "
	var out []string
	for width > 0 && len([]rune(line)) > width {
		runes := []rune(line)
		at := strings.LastIndexByte(string(runes[:width+1]), ' ')
		if at <= len(indent) {
			at = len(string(runes[:width]))
		}
		out = append(out, strings.TrimRight(line[:at], " "))
		line = indent + strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}
