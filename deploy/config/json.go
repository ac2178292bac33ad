package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// json reads JSON, strictly.
func (s *source) json() (*node, error) {
	r := jsonReader{s, json.NewDecoder(bytes.NewReader(s.text))}
	r.tokens.UseNumber()
	n, err := r.value(0)
	if err != nil {
		return nil, err
	}
	at := r.next()
	if _, err := r.tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, Problem{Position: at, Message: "no JSON: more after the first value"}
	}
	return n, nil
}

type jsonReader struct {
	*source
	tokens *json.Decoder
}

// next returns the position of the next token.
func (r *jsonReader) next() Position {
	offset := int(r.tokens.InputOffset())
	for offset < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[offset]) >= 0 {
		offset++
	}
	return r.at(offset)
}

func (r *jsonReader) token() (json.Token, error) {
	at := r.next()
	t, err := r.tokens.Token()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, Problem{Position: r.at(int(syntax.Offset) - 1), Message: "no JSON: " + syntax.Error()}
	}
	if err != nil {
		return nil, Problem{Position: at, Message: "no JSON: it ends too soon"}
	}
	return t, nil
}

func (r *jsonReader) value(depth int) (*node, error) {
	at := r.next()
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n, err := r.add(null, at, depth)
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case bool:
		n.kind, n.truth, n.text = truth, t, strconv.FormatBool(t)
	case json.Number:
		n.kind, n.text = whole, t.String()
		if n.whole, err = t.Int64(); err != nil {
			n.kind = fraction
			n.real, err = t.Float64()
		}
		if err != nil {
			return nil, Problem{Position: at, Message: brief(n.text) + " is out of range"}
		}
	case json.Delim:
		n.kind = table
		if t == '[' {
			n.kind = list
		}
		for r.tokens.More() {
			if err := r.item(n, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = r.token()
	}
	return n, err
}

// item reads one more of a list or a table.
func (r *jsonReader) item(n *node, depth int) error {
	at, name := r.next(), ""
	if n.kind == table {
		t, err := r.token()
		if err != nil {
			return err
		}
		name, _ = t.(string)
		if n.member(name) != nil {
			return Problem{Position: at, Message: brief(name) + " is there twice"}
		}
	}
	v, err := r.value(depth)
	switch {
	case err != nil:
		return err
	case n.kind == table:
		n.put(name, at, v)
	default:
		n.items = append(n.items, v)
	}
	return nil
}
