package plans

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
)

// Print prints a plan: what is done to which machine and why, whether it would fit, and
// what a reader should know.
func Print(s *cli.Shell, p *deploy.Plan, fits []Fit) error {
	width, _ := s.Out.Size()
	if width == 0 {
		width = whole
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

// whole is as wide as no line is: where there is no screen none is broken.
const whole = 1 << 20

// Summary says in one line what a plan has done: "2 updated, 1 created".
func Summary(p *deploy.Plan) string {
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
		if left := Left(p); left > 0 {
			parts = append(parts, fmt.Sprintf("%d left as before, since their workers do not answer,", left))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

// Left counts the machines that a plan does nothing about since their workers do not answer: they
// may not be as they are wanted.
func Left(p *deploy.Plan) int {
	n := 0
	for id := range p.Seen {
		if p.Seen[id].Lost && !slices.ContainsFunc(p.Steps, func(s deploy.Step) bool {
			return s.Config != nil && s.Config.Metadata[deploy.KeyReplaces] == string(id)
		}) {
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
