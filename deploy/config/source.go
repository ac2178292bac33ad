package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
)

// Limits for a file.
const (
	MaxBytes = 1 << 20
	maxDepth = 32 // depth of nested tables and lists
	// maxNodes is the maximum number of values, including those repeated by YAML aliases. The limit is necessary
	// because parsing TOML takes time that is quadratic in the number of values.
	maxNodes = 10_000
)

// source parses a file. The result is a tree of YAML nodes for every syntax, because YAML nodes record their positions.
type source struct {
	name  string
	text  []byte
	made  int                                 // number of nodes created
	nodes int                                 // number of nodes that [source.bounded] has visited
	last  struct{ offset, lines, column int } // the last offset passed to position, and its result
}

// full reports whether the file has so many nodes that it will be refused.
func (s *source) full() bool { return s.made > 4*maxNodes }

// position returns the line and column of an offset. It continues counting at the previous call's offset, because
// starting at the beginning each time would be slow if the file were one long line.
func (s *source) position(offset int) (line, column int) {
	offset = min(max(offset, 0), len(s.text))
	if offset < s.last.offset {
		s.last.offset, s.last.lines, s.last.column = 0, 0, 0
	}
	between := s.text[s.last.offset:offset]
	if lines := bytes.Count(between, []byte("\n")); lines > 0 {
		s.last.lines, s.last.column = s.last.lines+lines, 0
		between = between[bytes.LastIndexByte(between, '\n')+1:]
	}
	s.last.offset, s.last.column = offset, s.last.column+utf8.RuneCount(between)
	return s.last.lines + 1, s.last.column + 1
}

// read parses a file. The syntax depends on the extension of name, and is TOML by default.
func read(name string, raw []byte) (*yaml.Node, error) {
	s := &source{name: name, text: raw}
	if len(raw) > MaxBytes {
		return nil, Problem{Position{File: name}, "", "the file is too large: it has " + strconv.Itoa(len(raw)) + " bytes, but at most " + strconv.Itoa(MaxBytes) + " are allowed"}
	}
	for rest := raw; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || r == 0 {
			return nil, s.problem(s.node("", "", len(raw)-len(rest)), "not a text file: use UTF-8 without NUL bytes")
		}
		rest = rest[size:]
	}
	switch path.Ext(name) {
	case ".json":
		return s.json()
	case ".yaml", ".yml":
		return s.yaml()
	}
	return s.toml()
}

// node returns a new node with the position of an offset.
func (s *source) node(tag, value string, offset int) *yaml.Node {
	s.made++
	n := &yaml.Node{Tag: tag, Value: value, Kind: yaml.ScalarNode}
	n.Line, n.Column = s.position(offset)
	switch tag {
	case "!!map":
		n.Kind = yaml.MappingNode
	case "!!seq":
		n.Kind = yaml.SequenceNode
	}
	return n
}

func (s *source) problem(n *yaml.Node, message string) error {
	return Problem{Position{s.name, n.Line, n.Column}, "", message}
}

// bounded returns an error if a tree is too large or too deep, or if a table has
// duplicate names. It replaces YAML aliases with the nodes that they refer to, and all
// names with strings.
func (s *source) bounded(n *yaml.Node, depth int) error {
	if s.nodes++; s.nodes > maxNodes {
		return s.problem(n, "more than "+strconv.Itoa(maxNodes)+" values")
	}
	if depth > maxDepth {
		return s.problem(n, "nested deeper than "+strconv.Itoa(maxDepth)+" levels")
	}
	seen := map[string]bool{}
	for i, below := range n.Content {
		if below.Kind == yaml.AliasNode {
			below = below.Alias
			n.Content[i] = below
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case below.Kind != yaml.ScalarNode:
				return s.problem(below, "names must be strings")
			case seen[below.Value]:
				return s.problem(below, brief(below.Value)+" is defined twice")
			}
			seen[below.Value] = true
			n.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: below.Value, Line: below.Line, Column: below.Column}
			continue
		}
		if err := s.bounded(below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yaml parses a YAML document.
func (s *source) yaml() (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(s.text))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) { // the document contains nothing, or only comments
		return s.node("!!map", "", 0), nil
	}
	if err == nil {
		err = d.Decode(&more)
	}
	if err == nil {
		return nil, s.problem(&more, "the file contains more than one document")
	}
	if !errors.Is(err, io.EOF) {
		message, at := err.Error(), Position{File: s.name}
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			at.Column = 1
			message = message[len(m[0]):]
		}
		return nil, Problem{at, "", "invalid YAML: " + strings.TrimPrefix(message, "yaml: ")}
	}
	return doc.Content[0], s.bounded(doc.Content[0], 0)
}

// json parses a single JSON value.
func (s *source) json() (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(s.text))
	d.UseNumber()
	n, err := s.jsonValue(d, 0)
	if err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	if more := bytes.TrimSpace(s.text[end:]); len(more) > 0 {
		return nil, s.problem(s.node("", "", end+bytes.Index(s.text[end:], more)), "invalid JSON: unexpected data after the first value")
	}
	return n, s.bounded(n, 0)
}

func (s *source) jsonValue(d *json.Decoder, depth int) (*yaml.Node, error) {
	offset := int(d.InputOffset())
	offset += len(s.text[offset:]) - len(bytes.TrimLeft(s.text[offset:], " \t\r\n,:"))
	t, err := d.Token()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, s.problem(s.node("", "", int(syntax.Offset)-1), "invalid JSON: "+syntax.Error())
	}
	if err != nil {
		return nil, s.problem(s.node("", "", offset), "invalid JSON: unexpected end of file")
	}
	if depth > maxDepth || s.full() {
		return nil, s.problem(s.node("", "", offset), "more than "+strconv.Itoa(maxNodes)+" values, or nested deeper than "+strconv.Itoa(maxDepth)+" levels")
	}
	switch t := t.(type) {
	case string:
		return s.node("!!str", t, offset), nil
	case bool:
		return s.node("!!bool", strconv.FormatBool(t), offset), nil
	case json.Number:
		if _, err := t.Int64(); err == nil {
			return s.node("!!int", t.String(), offset), nil
		}
		return s.node("!!float", t.String(), offset), nil
	case json.Delim:
		n := s.node(map[json.Delim]string{'{': "!!map", '[': "!!seq"}[t], "", offset)
		for d.More() {
			below, err := s.jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, below)
		}
		if _, err := d.Token(); err != nil {
			return nil, s.problem(s.node("", "", len(s.text)), "invalid JSON: unexpected end of file")
		}
		return n, nil
	}
	return s.node("!!null", "", offset), nil
}

// toml parses TOML. It takes positions from the library's syntax tree, and uses the library's decoder to find duplicate
// definitions.
func (s *source) toml() (*yaml.Node, error) {
	root := s.node("!!map", "", 0)
	t := tomlReader{source: s}
	t.Reset(s.text)
	into := root
	for !s.full() && t.NextExpression() {
		switch e := t.Expression(); e.Kind { //nolint:exhaustive // other kinds are not expressions
		case unstable.Table, unstable.ArrayTable:
			into = t.header(root, e)
		case unstable.KeyValue:
			t.set(into, e)
		}
	}
	if parsed, ok := errors.AsType[*unstable.ParserError](t.Error()); ok {
		return nil, s.problem(s.node("", "", int(t.Range(parsed.Highlight).Offset)), "invalid TOML: "+parsed.Message)
	}
	if err := s.bounded(root, 0); err != nil {
		return nil, err
	}
	err := toml.Unmarshal(s.text, new(map[string]any))
	if decoded, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := decoded.Position()
		return nil, Problem{Position{s.name, row, column}, "", strings.TrimPrefix(decoded.Error(), "toml: ")}
	}
	if err != nil {
		return nil, Problem{Position{File: s.name}, "", err.Error()}
	}
	return root, nil
}

type tomlReader struct {
	*source
	unstable.Parser
}

func (t *tomlReader) key(k *unstable.Node) *yaml.Node {
	return t.node("!!str", string(k.Data), int(k.Raw.Offset))
}

// header returns the table that a TOML header refers to, and creates the table if it does not exist. Duplicate
// headers are not detected here, but refused later.
func (t *tomlReader) header(into *yaml.Node, e *unstable.Node) *yaml.Node {
	for keys := e.Key(); keys.Next(); {
		offset := int(keys.Node().Raw.Offset)
		next := member(into, string(keys.Node().Data))
		if next == nil {
			next = t.node("!!map", "", offset)
			if keys.IsLast() && e.Kind == unstable.ArrayTable {
				next = t.node("!!seq", "", offset)
			}
			into.Content = append(into.Content, t.key(keys.Node()), next)
		}
		if next.Kind == yaml.SequenceNode {
			if n := len(next.Content); n == 0 || keys.IsLast() {
				next.Content = append(next.Content, t.node("!!map", "", offset))
			}
			next = next.Content[len(next.Content)-1]
		}
		into = next
	}
	return into
}

// set sets a key in a table to a value. The key may contain dots.
func (t *tomlReader) set(into *yaml.Node, e *unstable.Node) {
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		if keys.IsLast() {
			into.Content = append(into.Content, t.key(key), t.value(e.Value(), int(key.Raw.Offset)))
			return
		}
		next := member(into, string(key.Data))
		if next == nil {
			next = t.node("!!map", "", int(key.Raw.Offset))
			into.Content = append(into.Content, t.key(key), next)
		}
		into = next
	}
}

// tomlTags maps kinds of TOML values to YAML tags. Dates become strings.
var tomlTags = map[unstable.Kind]string{
	unstable.Array: "!!seq", unstable.InlineTable: "!!map", unstable.Bool: "!!bool", unstable.Float: "!!float", unstable.Integer: "!!int",
	unstable.String: "!!str", unstable.LocalDate: "!!str", unstable.LocalTime: "!!str", unstable.LocalDateTime: "!!str", unstable.DateTime: "!!str",
}

// value converts a value to a node. near is the offset of the value's key, which is used for values without an offset.
func (t *tomlReader) value(v *unstable.Node, near int) *yaml.Node {
	if v.Raw.Length > 0 {
		near = int(v.Raw.Offset)
	}
	n := t.node(tomlTags[v.Kind], string(v.Data), near)
	for items := v.Children(); !t.full() && items.Next(); {
		if n.Kind == yaml.MappingNode {
			t.set(n, items.Node())
		} else {
			n.Content = append(n.Content, t.value(items.Node(), near))
		}
	}
	return n
}

// TOML converts a JSON object, such as the definition of a release, to TOML. It omits null
// members of tables. Errors: invalid for anything other than a JSON object, and for values
// that TOML cannot express.
func TOML(object []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var members map[string]any
	if err := d.Decode(&members); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a configuration must be a JSON object: %w", err)
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).SetMarshalJSONNumbers(true).Encode(members); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	return out.Bytes(), nil
}
