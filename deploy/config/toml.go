package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// toml reads TOML: the library's own decoder says what is no TOML, its syntax tree
// has the positions.
func (s *source) toml() (*node, error) {
	root, err := s.add(table, s.at(0), 0)
	if err != nil {
		return nil, err
	}
	t := tomlReader{source: s}
	t.parser.Reset(s.text)
	into := root
	for t.parser.NextExpression() {
		e := t.parser.Expression()
		switch e.Kind { //nolint:exhaustive // the others are no expressions
		case unstable.Table, unstable.ArrayTable:
			into, err = t.header(root, e)
		case unstable.KeyValue:
			err = t.set(into, e, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	if parsed, ok := errors.AsType[*unstable.ParserError](t.parser.Error()); ok {
		return nil, Problem{Position: s.at(int(t.parser.Range(parsed.Highlight).Offset)), Message: "no TOML: " + parsed.Message}
	}
	var whole map[string]any
	err = toml.Unmarshal(s.text, &whole) // what is defined twice
	if decoded, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := decoded.Position()
		return nil, Problem{Position: Position{s.name, row, column}, Message: strings.TrimPrefix(decoded.Error(), "toml: ")}
	}
	if err != nil {
		return nil, Problem{Position: Position{File: s.name}, Message: err.Error()}
	}
	return root, nil
}

type tomlReader struct {
	*source
	parser unstable.Parser
}

func (t *tomlReader) position(n *unstable.Node) Position { return t.at(int(n.Raw.Offset)) }

// header returns the table that what follows a header is written into.
func (t *tomlReader) header(root *node, e *unstable.Node) (*node, error) {
	into, depth := root, 0
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		at := t.position(key)
		depth++
		last := keys.IsLast()
		next := into.member(string(key.Data))
		var err error
		switch {
		case next == nil && last && e.Kind == unstable.ArrayTable:
			if next, err = t.add(list, at, depth); err != nil {
				return nil, err
			}
			into.put(string(key.Data), at, next)
			fallthrough
		case last && e.Kind == unstable.ArrayTable && next.kind == list:
			item, err := t.add(table, at, depth)
			if err != nil {
				return nil, err
			}
			next.items = append(next.items, item)
			return item, nil
		case next == nil:
			if next, err = t.add(table, at, depth); err != nil {
				return nil, err
			}
			into.put(string(key.Data), at, next)
		case next.kind == list && len(next.items) > 0:
			next = next.items[len(next.items)-1]
		}
		if next.kind != table {
			return nil, Problem{Position: at, Message: brief(string(key.Data)) + " is " + string(next.kind) + " already"}
		}
		into = next
	}
	return into, nil
}

// set writes key = value into a table; the key may have dots.
func (t *tomlReader) set(into *node, e *unstable.Node, depth int) error {
	for keys := e.Key(); keys.Next(); depth++ {
		key := keys.Node()
		name, at := string(key.Data), t.position(key)
		next := into.member(name)
		switch {
		case keys.IsLast() && next != nil:
			return Problem{Position: at, Message: brief(name) + " is there twice"}
		case keys.IsLast():
			value, err := t.value(e.Value(), at, depth)
			if err != nil {
				return err
			}
			into.put(name, at, value)
		case next == nil:
			var err error
			if next, err = t.add(table, at, depth); err != nil {
				return err
			}
			into.put(name, at, next)
		case next.kind != table:
			return Problem{Position: at, Message: brief(name) + " is " + string(next.kind) + " already"}
		}
		into = next
	}
	return nil
}

var tomlKinds = map[unstable.Kind]kind{
	unstable.Array: list, unstable.InlineTable: table, unstable.String: text, unstable.Bool: truth, unstable.Float: fraction, unstable.Integer: whole,
	unstable.LocalDate: date, unstable.LocalTime: date, unstable.LocalDateTime: date, unstable.DateTime: date,
}

// value reads a value; near is the position of its key, for those without one of their own.
func (t *tomlReader) value(v *unstable.Node, near Position, depth int) (*node, error) {
	at := near
	if v.Raw.Length > 0 {
		at = t.position(v)
	}
	n, err := t.add(tomlKinds[v.Kind], at, depth)
	if err != nil {
		return nil, err
	}
	n.text = string(v.Data)
	switch n.kind {
	case truth:
		n.truth = n.text == "true"
	case whole:
		n.whole, err = strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
	case fraction:
		n.real, err = strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
	case list:
		for items := v.Children(); items.Next(); {
			item, err := t.value(items.Node(), at, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case table:
		for items := v.Children(); items.Next(); {
			if err := t.set(n, items.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	case null, text, date:
	}
	if err != nil {
		return nil, Problem{Position: at, Message: brief(n.text) + " is out of range"}
	}
	return n, nil
}
