package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// params contains the values of a statement's parameters, by position or by name. Each value is nil
// or an int64, float64, string or []byte.
type params struct {
	list  []any
	named map[string]any // parameters by name; if nil, list is used
}

// readParams decodes the params of a request. Errors: invalid.
func readParams(raw json.RawMessage) (params, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return params{}, nil
	}
	var p params
	var err error
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if err = json.Unmarshal(raw, &list); err != nil {
			break
		}
		for i, v := range list {
			value, err := readValue(v)
			if err != nil {
				return params{}, bourse.Errorf(bourse.CodeInvalid, "parameter %d: %w", i+1, err)
			}
			p.list = append(p.list, value)
		}
	case '{':
		var named map[string]json.RawMessage
		if err = json.Unmarshal(raw, &named); err != nil {
			break
		}
		p.named = map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			value, err := readValue(named[name])
			if err != nil {
				return params{}, bourse.Errorf(bourse.CodeInvalid, "parameter %s: %w", bourse.Quoted(name), err)
			}
			p.named[name] = value
		}
	default:
		err = errors.New("neither an array nor an object")
	}
	if err != nil {
		return params{}, bourse.Errorf(bourse.CodeInvalid, "invalid params: %w", err)
	}
	if max(len(p.list), len(p.named)) > maxParams {
		return params{}, bourse.Errorf(bourse.CodeInvalid, "more than %d parameters", maxParams)
	}
	return p, nil
}

func readValue(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch v := v.(type) {
	case nil, string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case json.Number:
		return readNumber(v.String())
	case map[string]any:
		var blob struct {
			Blob *[]byte `json:"blob"`
		}
		if err := json.Unmarshal(raw, &blob); err == nil && blob.Blob != nil && len(v) == 1 {
			return *blob.Blob, nil
		}
	}
	return nil, errors.New(`use null, a number, a string, true, false or {"blob":"<base64>"}`)
}

// readNumber parses a JSON number as an int64 or, if it has a fraction or exponent, as a float64.
// It returns an error for an integer that does not fit into an int64, because a float64 might not
// represent it exactly.
func readNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, errors.New("the number is out of range")
		}
		return f, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, errors.New("the integer does not fit into 64 bits: send it as a string")
	}
	return n, nil
}

// bind sets the parameters of a statement. Errors: invalid.
func (p params) bind(stmt *sqlite.Stmt) error {
	n := stmt.BindParamCount()
	if p.named == nil {
		if len(p.list) != n {
			return bourse.Errorf(bourse.CodeInvalid, "the statement has %d parameters, but the request has %d values", n, len(p.list))
		}
		for i, v := range p.list {
			bindValue(stmt, i+1, v)
		}
		return nil
	}
	used := map[string]bool{}
	for i := 1; i <= n; i++ {
		name := strings.TrimLeft(stmt.BindParamName(i), ":@$?")
		v, ok := p.named[name]
		if !ok {
			return bourse.Errorf(bourse.CodeInvalid, "parameter %s has no value", bourse.Quoted(paramName(name, i)))
		}
		used[name] = true
		bindValue(stmt, i, v)
	}
	for _, name := range slices.Sorted(maps.Keys(p.named)) {
		if !used[name] {
			return bourse.Errorf(bourse.CodeInvalid, "the statement has no parameter %s", bourse.Quoted(name))
		}
	}
	return nil
}

// paramName returns the name of the i-th parameter, or its number if it has no name.
func paramName(name string, i int) string {
	if name == "" {
		return strconv.Itoa(i)
	}
	return name
}

func bindValue(stmt *sqlite.Stmt, i int, v any) {
	switch v := v.(type) {
	case nil:
		stmt.BindNull(i)
	case int64:
		stmt.BindInt64(i, v)
	case float64:
		stmt.BindFloat(i, v)
	case string:
		stmt.BindText(i, v)
	case []byte:
		stmt.BindBytes(i, v)
	}
}
