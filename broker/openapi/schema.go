package openapi

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// object is a JSON object in the OpenAPI description.
type object map[string]any

// schemas generates the schemas of types, and collects the schemas of named types.
type schemas struct {
	named object
	read  map[reflect.Type]bool // types that occur in requests; none of their members are required
}

// knownSchema returns the schema of a type that implements its own JSON encoding. It returns false for
// other types.
func knownSchema(t reflect.Type) (object, bool) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}, true
	case reflect.TypeFor[bourse.Duration]():
		return object{"type": list("string", "integer"), "description": "such as 15s or 1m30s; a number means nanoseconds"}, true
	case reflect.TypeFor[bourse.Signal]():
		return object{"type": list("string", "integer"), "description": "a signal name such as SIGTERM, or a number"}, true
	case reflect.TypeFor[bourse.Requirement]():
		return object{"type": list("string", "integer"), "description": "the value of a label, or the amount of a countable resource"}, true
	case reflect.TypeFor[bourse.Command]():
		return object{"type": list("string", "array"), "items": object{"type": "string"}, "description": "a list of arguments, or a string for sh -c"}, true
	case reflect.TypeFor[json.RawMessage]():
		return object{}, true
	case reflect.TypeFor[machinesapi.ScheduleRequirements]():
		return object{"type": "object", "properties": object{"Region": object{"type": "string"}}, "additionalProperties": object{"type": list("string", "integer")}}, true
	case reflect.TypeFor[machinesapi.ViewQuery]():
		return object{"type": "object", "required": list("statement"), "properties": object{
			"statement": object{"type": "string"}, "params": object{"type": list("array", "object")},
			"max_rows": object{"type": "integer"}, "max_ms": object{"type": "integer"}, "key": object{"type": "array", "items": object{"type": "string"}},
		}}, true
	case reflect.TypeFor[machinesapi.ViewLine]():
		return object{"type": "object", "description": "exactly one of columns, row, end, change and error"}, true
	}
	return nil, false
}

func list(items ...string) []string { return items }

// of returns the schema of a type. The schema of a named type is a reference.
func (s *schemas) of(t reflect.Type) object {
	if out, ok := knownSchema(t); ok {
		return out
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return object{"type": "string"}
	}
	switch t.Kind() { //nolint:exhaustive // other kinds cannot be encoded
	case reflect.Pointer:
		return object{"anyOf": []object{s.of(t.Elem()), {"type": "null"}}}
	case reflect.Struct:
		return s.structure(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return text(t)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	}
	return object{} // the empty schema allows any value
}

// text returns the schema of a string type.
func text(t reflect.Type) object {
	if t == reflect.TypeFor[bourse.State]() {
		return object{"type": "string", "examples": bourse.States()}
	}
	return object{"type": "string"}
}

// structure returns the schema of a struct type. The schema of a named type is a reference, and
// the definition is added to s.named.
func (s *schemas) structure(t reflect.Type) object {
	if t.Name() == "" {
		return s.members(t)
	}
	name := nameOf(t)
	if _, known := s.named[name]; !known {
		s.named[name] = nil // prevents infinite recursion if the type contains itself
		s.named[name] = s.members(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// nameOf returns the name of a type's schema. It is the type's name, qualified with its package
// unless the type belongs to package machinesapi.
func nameOf(t reflect.Type) string {
	if t.PkgPath() == reflect.TypeFor[machinesapi.Machine]().PkgPath() {
		return t.Name()
	}
	return t.String()
}

func (s *schemas) members(t reflect.Type) object {
	properties, required := object{}, []string{}
	s.add(t, properties, &required, true)
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 && !s.read[t] {
		out["required"] = required
	}
	for name := range properties {
		if isAddition(nameOf(t), name) {
			properties[name] = object{"allOf": []any{properties[name]}, "x-bourse": true}
		}
	}
	return out
}

// add adds the fields of t, a struct, and of its embedded structs to properties. If always is set, a value of type
// t is always present, and add also appends to required the names of the fields that are always present in it.
func (s *schemas) add(t reflect.Type, properties object, required *[]string, always bool) {
	var embedded []reflect.StructField
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && pointed(f.Type).Kind() == reflect.Struct:
			embedded = append(embedded, f)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			if _, hidden := properties[name]; hidden {
				continue
			}
			optional := strings.Contains(options, "omit")
			properties[name] = s.member(f.Type, optional)
			if always && !optional {
				*required = append(*required, name)
			}
		}
	}
	for _, f := range embedded {
		s.add(pointed(f.Type), properties, required, always && f.Type.Kind() != reflect.Pointer)
	}
}

// member returns the schema of a field's value. If optional is false, the schema of a list or map also allows null.
func (s *schemas) member(t reflect.Type, optional bool) object {
	out := s.of(t)
	if kind, ok := out["type"].(string); ok && !optional && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		out["type"] = list(kind, "null")
	}
	return out
}

func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// markRead records that a type, and all types that it contains, occur in a request's body.
func (s *schemas) markRead(t reflect.Type) {
	switch t.Kind() { //nolint:exhaustive // other kinds contain no further types
	case reflect.Pointer, reflect.Slice, reflect.Map:
		s.markRead(t.Elem())
	case reflect.Struct:
		if s.read[t] {
			return
		}
		s.read[t] = true
		for f := range t.Fields() {
			s.markRead(f.Type)
		}
	}
}
