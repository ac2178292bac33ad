package bourse

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// bareConfig is a Config with nothing but its fields.
type bareConfig Config

// UnmarshalJSON reads a config and keeps the members that it has no field for,
// so that a client which reads, changes and sends back a config loses none.
func (c *Config) UnmarshalJSON(raw []byte) error {
	c.Rest = nil
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if strict.Decode((*bareConfig)(c)) == nil { // most have none, and need no second look
		return nil
	}
	if err := json.Unmarshal(raw, (*bareConfig)(c)); err != nil {
		return err
	}
	rest, err := encodePlain(unread(raw, reflect.TypeFor[bareConfig]()))
	if err == nil && string(rest) != "null" {
		c.Rest = rest
	}
	return err
}

// MarshalJSON writes a config with what UnmarshalJSON kept of it.
func (c Config) MarshalJSON() ([]byte, error) {
	raw, err := encodePlain(bareConfig(c))
	if err != nil || len(c.Rest) == 0 {
		return raw, err
	}
	var whole, rest any
	if err := decodeNumbers(raw, &whole); err != nil {
		return nil, err
	}
	if err := decodeNumbers(c.Rest, &rest); err != nil {
		return nil, err
	}
	restore(whole, rest, reflect.TypeFor[bareConfig]())
	return encodePlain(whole)
}

// encodePlain leaves it to the caller to escape HTML: what is kept is given back
// as it came.
func encodePlain(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// decodeNumbers keeps numbers as they were written.
func decodeNumbers(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// Unread returns the members of raw, a JSON value that was decoded into v, that
// v's type has no fields for: a map of such members, a list in which nil stands
// for an item that has none, and nil if there are none. A type that decodes
// itself is taken to read everything.
func Unread(raw []byte, v any) any { return unread(raw, reflect.TypeOf(v)) }

// unread returns the part of raw, a JSON value of type t, that t has no fields
// for: an object of such members, a list in which null stands for an item that has
// none, and nil for nothing.
func unread(raw []byte, t reflect.Type) any {
	switch t = target(t); {
	case t == nil:
	case t.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // it has been read as a t before
		out := map[string]any{}
		for name, value := range members {
			field, known := fieldOf(t, name)
			if !known {
				var v any
				if decodeNumbers(value, &v) == nil {
					out[name] = v
				}
			} else if v := unread(value, field.Type); v != nil {
				out[fieldName(field)] = v
			}
		}
		if len(out) > 0 {
			return out
		}
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items)
		out, found := make([]any, len(items)), false
		for i, item := range items {
			out[i] = unread(item, t.Elem())
			found = found || out[i] != nil
		}
		if found {
			return out
		}
	}
	return nil
}

// restore adds to whole, the JSON value of a t, what unread returned. What belongs
// to a value that is no longer there is left out.
func restore(whole, rest any, t reflect.Type) {
	t = target(t)
	switch rest := rest.(type) {
	case map[string]any:
		into, ok := whole.(map[string]any)
		if !ok || t == nil || t.Kind() != reflect.Struct {
			return
		}
		for name, value := range rest {
			if field, known := fieldOf(t, name); known {
				restore(into[fieldName(field)], value, field.Type)
			} else {
				into[name] = value
			}
		}
	case []any:
		into, ok := whole.([]any)
		if !ok || t == nil || t.Kind() != reflect.Slice {
			return
		}
		for i := range min(len(into), len(rest)) {
			restore(into[i], rest[i], t.Elem())
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// target returns what t points to, nil when that reads JSON in a way of its own.
func target(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	return t
}

// fieldOf finds the field that a member of that name is read into, as
// encoding/json does.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	var folded reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		switch has := fieldName(f); {
		case f.Anonymous || has == "-":
		case has == name:
			return f, true
		case strings.EqualFold(has, name):
			folded = f
		}
	}
	return folded, folded.Name != ""
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
