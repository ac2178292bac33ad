package config

import (
	"iter"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
)

// kind is the type of a value. Error messages use these names.
type kind string

const (
	null        kind = "null"
	text        kind = "a string"
	integerKind kind = "a whole number"
	numberKind  kind = "a number"
	boolean     kind = "true or false"
	list        kind = "a list"
	table       kind = "a table"
)

var kinds = map[string]kind{
	"!!null": null, "!!str": text, "!!timestamp": text, "!!int": integerKind, "!!float": numberKind, "!!bool": boolean, "!!seq": list, "!!map": table,
}

// kindOf returns the kind of a value, or "" if it has a custom tag.
func kindOf(n *yaml.Node) kind { return kinds[n.ShortTag()] }

// members iterates over the names and values of a table.
func members(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(name, value *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// member returns the value of a table's member, or nil if there is none.
func member(n *yaml.Node, name string) *yaml.Node {
	for key, value := range members(n) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

// integer returns the node's value as an integer. It returns false if the value is not an integer.
func integer(n *yaml.Node) (int64, bool) {
	number, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return number, err == nil && kindOf(n) == integerKind
}

// isTrue reports whether a value is true.
func isTrue(n *yaml.Node) bool { return kindOf(n) == boolean && strings.EqualFold(n.Value, "true") }

// word returns a scalar as it is written in the file. It returns false for lists and tables.
func word(n *yaml.Node) (string, bool) {
	switch kindOf(n) {
	case text, integerKind, numberKind, boolean:
		return n.Value, true
	case null:
		return "", true
	case list, table:
	}
	return "", false
}

// hasEffect reports whether a value requests something. Empty values, false and 0 request nothing. A list or table
// requests something if at least one of its values does.
func hasEffect(n *yaml.Node) bool {
	switch kindOf(n) {
	case text:
		return n.Value != ""
	case integerKind:
		number, ok := integer(n)
		return !ok || number != 0
	case boolean:
		return isTrue(n)
	case null:
		return false
	case list, table:
		for i, below := range n.Content {
			if (n.Kind == yaml.SequenceNode || i%2 == 1) && hasEffect(below) {
				return true
			}
		}
		return false
	case numberKind:
	}
	return true
}

// shown formats a value for an error message.
func shown(n *yaml.Node) string {
	switch k := kindOf(n); k {
	case text:
		return bourse.Quoted(n.Value)
	case list, table, null:
		return string(k)
	case integerKind, numberKind, boolean:
	}
	return brief(n.Value)
}

// brief shortens a value from a file for an error message.
func brief(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
