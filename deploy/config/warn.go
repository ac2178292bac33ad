package config

import (
	"slices"
	"strings"
)

// may warns of a field that is not acted on, and refuses what only bourse.toml has.
func (d *decoder) may(n *node, w where) bool {
	f := fieldAt(w.field)
	switch {
	case f == nil:
	case f.Ours && !d.ours:
		d.problem(n.at, w.path, "it is Bourse's own: write it in a file that is named bourse.toml, which may have all that fly.toml has")
		return false
	case f.Treatment == NotDone && f.asked(n) && !d.said(w.field):
		d.unacted[w.field] = true
		d.warn(n.at, w.path, f.Text)
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
func (f *Field) asked(n *node) bool {
	if len(f.Idle) > 0 {
		return !slices.Contains(f.Idle, n.text)
	}
	return asks(n)
}

func (d *decoder) warn(at Position, field, message string) {
	if len(d.warnings) < maxProblems {
		d.warnings = append(d.warnings, Warning{at, field, message})
	}
}

// asks reports whether a value asks for anything.
func asks(n *node) bool {
	switch n.kind {
	case text:
		return n.text != ""
	case whole:
		return n.whole != 0
	case truth:
		return n.truth
	case list:
		return slices.ContainsFunc(n.items, asks)
	case table:
		return slices.ContainsFunc(n.members, func(m member) bool { return asks(m.value) })
	case null:
		return false
	case fraction, date:
	}
	return true
}

// plain is a value of any shape, as encoding/json reads it.
func plain(n *node) any {
	switch n.kind {
	case text, date:
		return n.text
	case whole:
		return n.whole
	case fraction:
		return n.real
	case truth:
		return n.truth
	case list:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = plain(item)
		}
		return out
	case table:
		out := map[string]any{}
		for _, m := range n.members {
			out[m.name] = plain(m.value)
		}
		return out
	case null:
	}
	return nil
}
