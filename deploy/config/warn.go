package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// may warns of a field that is not acted on, and refuses what only bourse.toml has.
func (d *decoder) may(n *yaml.Node, w where) bool {
	f := fieldAt(w.field)
	switch {
	case f == nil:
	case f.Ours && !d.ours:
		d.problem(n, w.path, "it is Bourse's own: write it in a file that is named bourse.toml, which may have all that fly.toml has")
		return false
	case f.Treatment == NotDone && f.asked(n) && !d.said(w.field):
		d.unacted[w.field] = true
		d.warn(n, w.path, f.Text)
	}
	return true
}

// said reports whether there is a warning about a field, or about what it is in.
func (d *decoder) said(field string) bool {
	for {
		if d.unacted[field] {
			return true
		}
		dot := strings.LastIndexByte(field, '.')
		if dot < 0 {
			return false
		}
		field = field[:dot]
	}
}

// asked reports whether a value of a field asks for what is not done.
func (f *Field) asked(n *yaml.Node) bool {
	if len(f.Idle) > 0 {
		return !slices.Contains(f.Idle, n.Value)
	}
	return asks(n)
}

func (d *decoder) warn(n *yaml.Node, field, message string) {
	if len(d.warnings) < maxProblems {
		d.warnings = append(d.warnings, Warning{d.position(n), field, message})
	}
}
