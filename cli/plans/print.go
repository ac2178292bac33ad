package plans

import (
	"fmt"
	"io"
	"strings"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
)

// Print prints a plan, and reports whether workers would accept its machines.
func Print(s *cli.Shell, p *deploy.Plan, fits []Fit) error {
	width, _ := s.Out.Size()
	if width == 0 {
		width = unlimitedWidth
	}
	var b strings.Builder
	b.WriteString(p.Text(width))
	for i := range fits {
		for _, line := range fits[i].lines() {
			for _, part := range cli.Wrap(cli.Clean(line), width, 2) {
				b.WriteString(part + "\n")
			}
		}
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}

// unlimitedWidth is a width that no line reaches, so that lines are not broken if the output is not
// a terminal.
const unlimitedWidth = 1 << 20

// summary describes a plan's changes in one line, for example "2 updated, 1 created".
func summary(p *deploy.Plan) string {
	sum := p.Summary()
	var parts []string
	for _, n := range []struct {
		count int
		what  string
	}{
		{sum.Create, "created"}, {sum.Update, "updated"}, {sum.Replace, "replaced"}, {sum.Restart, "restarted"}, {sum.Finish, "finished"}, {sum.Destroy, "destroyed"},
	} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if p.Release != "" {
		if left := CountUnreachable(p); left > 0 {
			parts = append(parts, fmt.Sprintf("%d left unchanged, because their workers do not answer", left))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

// CountUnreachable counts the machines that a plan leaves unchanged because their workers do not
// answer.
func CountUnreachable(p *deploy.Plan) int {
	n := 0
	for _, seen := range p.Seen {
		if seen.Lost {
			n++
		}
	}
	return n
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
