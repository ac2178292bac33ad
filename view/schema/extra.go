package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse/view/wire"
)

// encodeExtra writes columns that this release does not know as a JSON object
// from which decodeExtra gets the same values again: a number with a point or
// exponent is a float64, one without an int64, {"base64": …} are bytes.
func encodeExtra(c wire.Columns) (string, error) {
	b := []byte{'{'}
	for i, e := range c {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(e.Name)
		if err != nil {
			return "", err
		}
		b = append(append(b, name...), ':')
		switch v := e.Value.(type) {
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case float64:
			s := strconv.FormatFloat(v, 'g', -1, 64)
			if !strings.ContainsAny(s, ".e") {
				s += ".0"
			}
			b = append(b, s...)
		case []byte:
			b = append(b, `{"base64":"`...)
			b = base64.StdEncoding.AppendEncode(b, v)
			b = append(b, `"}`...)
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			b = append(b, text...)
		}
	}
	return string(append(b, '}')), nil
}

func decodeExtra(s string) (wire.Columns, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	out := make(wire.Columns, 0, len(m))
	for name, v := range m {
		value, err := decodeExtraValue(v)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", name, err)
		}
		out = append(out, wire.Column{Name: name, Value: value})
	}
	slices.SortFunc(out, wire.ByName)
	return out, nil
}

func decodeExtraValue(v any) (wire.Value, error) {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return v.Float64()
		}
		return v.Int64()
	case map[string]any:
		text, ok := v["base64"].(string)
		if !ok {
			return nil, fmt.Errorf("an object without base64")
		}
		return base64.StdEncoding.DecodeString(text)
	}
	return wire.Scalar(v)
}
