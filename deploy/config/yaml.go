package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yaml reads one document of YAML.
func (s *source) yaml() (*node, error) {
	d := yaml.NewDecoder(bytes.NewReader(s.text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // nothing but comments
			return s.add(table, s.at(0), 0)
		}
		return nil, s.notYAML(err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, s.notYAML(err)
		}
		return nil, Problem{Position: Position{s.name, more.Line, more.Column}, Message: "one document only"}
	}
	return s.yamlNode(&doc, 0)
}

func (s *source) notYAML(err error) error {
	message, at := err.Error(), Position{File: s.name}
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		at.Column = 1
		message = message[len(m[0]):]
	}
	return Problem{Position: at, Message: "no YAML: " + strings.TrimPrefix(message, "yaml: ")}
}

func (s *source) yamlNode(y *yaml.Node, depth int) (*node, error) {
	n, err := s.add(null, Position{s.name, y.Line, y.Column}, depth)
	if err != nil {
		return nil, err
	}
	switch y.Kind {
	case yaml.DocumentNode:
		return s.yamlNode(y.Content[0], depth)
	case yaml.AliasNode:
		return s.yamlNode(y.Alias, depth+1)
	case yaml.SequenceNode:
		n.kind = list
		for _, c := range y.Content {
			item, err := s.yamlNode(c, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case yaml.MappingNode:
		n.kind = table
		for i := 0; i+1 < len(y.Content); i += 2 {
			key := y.Content[i]
			at := Position{s.name, key.Line, key.Column}
			if key.Kind != yaml.ScalarNode {
				return nil, Problem{Position: at, Message: "a name is a text"}
			}
			if n.member(key.Value) != nil {
				return nil, Problem{Position: at, Message: brief(key.Value) + " is there twice"}
			}
			value, err := s.yamlNode(y.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			n.put(key.Value, at, value)
		}
	case yaml.ScalarNode:
		return n, n.yamlScalar(y)
	}
	return n, nil
}

func (n *node) yamlScalar(y *yaml.Node) (err error) {
	n.text = y.Value
	switch y.ShortTag() {
	case "!!null":
	case "!!bool":
		n.kind = truth
		err = y.Decode(&n.truth)
	case "!!int":
		n.kind = whole
		err = y.Decode(&n.whole)
	case "!!float":
		n.kind = fraction
		err = y.Decode(&n.real)
	case "!!timestamp":
		n.kind = date
	case "!!str":
		n.kind = text
	default:
		err = errors.New("")
	}
	if err != nil {
		return Problem{Position: n.at, Message: bourse.Quoted(y.Value) + " cannot be read as " + y.ShortTag()}
	}
	return nil
}
