package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// decoder fills a Definition from a tree of YAML nodes.
type decoder struct {
	ours     bool                // the file may contain fields that only Bourse supports
	at       map[string]Position // position of each value, by path
	warned   map[string]bool     // fields that have no effect and already have a warning
	warnings []Warning
	problems Problems
	file     string
}

func (d *decoder) position(n *yaml.Node) Position { return Position{d.file, n.Line, n.Column} }

// where identifies a location in a definition by two paths: the path to show to users,
// such as services[0].ports, and the path in [Fields], such as services.ports.
type where struct{ path, field string }

func (w where) member(name string) where { return w.below(name, name) }

// named returns the location of a member with a user-defined name.
func (w where) named(name string) where { return w.below(name, "*") }

func (w where) below(name, field string) where {
	if w.path == "" {
		return where{name, field}
	}
	return where{w.path + "." + name, w.field + "." + field}
}

func (w where) item(i int) where { return where{w.path + "[" + strconv.Itoa(i) + "]", w.field} }

func (d *decoder) problem(n *yaml.Node, field, format string, args ...any) {
	if len(d.problems) <= maxProblems {
		d.problems = append(d.problems, Problem{d.position(n), field, fmt.Sprintf(format, args...)})
	}
}

// wrong adds a problem about an invalid value. allowed describes the valid values.
func (d *decoder) wrong(n *yaml.Node, w where, allowed string) {
	d.problem(n, w.path, "%s: use %s", shown(n), allowed)
}

// value decodes n into v. tag contains the tags of the field that contains v.
func (d *decoder) value(n *yaml.Node, w where, v reflect.Value, tag reflect.StructTag) {
	if kindOf(n) == null {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	d.at[w.path] = d.position(n)
	if !d.isPermitted(n, w) {
		return
	}
	if r := readerOf(v.Addr()); r != nil {
		if allowed := r.read(n); allowed != "" {
			d.wrong(n, w, allowed)
		} else {
			d.amount(n, w, v, tag.Get("in"))
		}
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *bourse.Duration:
		d.duration(n, w, p, tag)
		return
	case *workload.Concurrency:
		if kindOf(n) == text {
			if allowed := limits(p, n.Value); allowed != "" {
				d.wrong(n, w, allowed)
			}
			return
		}
	case *bourse.Requirement:
		r, allowed := requirement(n)
		if *p = r; allowed != "" {
			d.wrong(n, w, allowed)
		}
		return
	case *any:
		if n.Decode(p) != nil {
			d.wrong(n, w, "a value that JSON supports")
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, w, v)
	case reflect.Map:
		d.names(n, w, v, tag)
	case reflect.Slice:
		d.list(n, w, v, tag)
	default:
		d.scalar(n, w, v, tag)
	}
}

// readerOf returns the reader that decodes into v, or nil if v's type does not have one. v must be a pointer.
func readerOf(v reflect.Value) reader {
	switch p := v.Interface().(type) {
	case reader:
		return p
	case *workload.Autostop:
		return (*autostop)(p)
	case *workload.Edit:
		return (*edit)(p)
	}
	return nil
}

// scalar decodes a string, a boolean or a number.
func (d *decoder) scalar(n *yaml.Node, w where, v reflect.Value, tag reflect.StructTag) {
	in := tag.Get("in")
	switch v.Kind() { //nolint:exhaustive // a Definition contains no other kinds
	case reflect.String:
		words := strings.Split(in, "|")
		switch {
		case kindOf(n) != text && in == "":
			d.wrong(n, w, "a string")
		case kindOf(n) != text || in != "" && !slices.Contains(words, n.Value):
			d.wrong(n, w, oneOf(words)+suggestion(n.Value, words))
		default:
			v.SetString(n.Value)
		}
	case reflect.Bool:
		if kindOf(n) != boolean {
			d.wrong(n, w, "true or false")
			return
		}
		v.SetBool(isTrue(n))
	case reflect.Int, reflect.Int64, reflect.Uint32:
		low, high, _ := strings.Cut(in, "..")
		least, _ := strconv.ParseInt(low, 10, 64)
		most, _ := strconv.ParseInt(high, 10, 64)
		number, ok := integer(n)
		if tag.Get("quoted") != "" && kindOf(n) == text {
			var err error
			number, err = strconv.ParseInt(n.Value, 10, 64)
			ok = err == nil
		}
		if !ok || number < least || number > most {
			d.wrong(n, w, "a whole number from "+low+" to "+high)
			return
		}
		if v.CanInt() {
			v.SetInt(number)
		} else {
			v.SetUint(uint64(number)) //nolint:gosec // the range excludes negative numbers
		}
	case reflect.Float64:
		number, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
		if k := kindOf(n); err != nil || k != integerKind && k != numberKind {
			d.wrong(n, w, "a number")
			return
		}
		v.SetFloat(number)
	}
}

// amount adds a problem if a size is outside the range specified by the field's "in" tag.
func (d *decoder) amount(n *yaml.Node, w where, v reflect.Value, in string) {
	low, high, ok := strings.Cut(in, "..")
	if !ok || v.Kind() != reflect.Int64 {
		return
	}
	unit := int64(1)
	if v.Type() == reflect.TypeFor[GB]() {
		unit = 1024
	}
	least, _ := mebibytes(low, unit)
	most, _ := mebibytes(high, unit)
	if v.Int()*unit < least || v.Int()*unit > most {
		d.wrong(n, w, low+" to "+high)
	}
}

// duration decodes a duration: a string with a unit or, if the field has the tag "bare", a number.
func (d *decoder) duration(n *yaml.Node, w where, into *bourse.Duration, tag reflect.StructTag) {
	low, high, _ := strings.Cut(tag.Get("in"), "..")
	least, _ := time.ParseDuration(low)
	most, _ := time.ParseDuration(high)
	bare, _ := time.ParseDuration(tag.Get("bare"))
	allowed := "a duration such as \"15s\", from " + low + " to " + high
	if bare > 0 {
		allowed += "; a number without a unit means " + map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}[bare]
	}
	var t time.Duration
	var err error
	number, isWhole := integer(n)
	switch {
	case kindOf(n) == text && n.Value == "": // old files contain "" if the duration is not set
		return
	case kindOf(n) == text:
		if t, err = time.ParseDuration(n.Value); err != nil && bare > 0 { // the text may be a number without a unit
			if number, err = strconv.ParseInt(n.Value, 10, 32); err == nil {
				t = time.Duration(number) * bare
			}
		}
	case isWhole && bare > 0 && number <= int64(most/bare) && number >= 0:
		t = time.Duration(number) * bare
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || t < least || t > most {
		d.wrong(n, w, allowed)
		return
	}
	*into = bourse.Duration(t)
}

// list decodes a list. A single table counts as a list with one table.
func (d *decoder) list(n *yaml.Node, w where, v reflect.Value, tag reflect.StructTag) {
	items := n.Content
	tables := v.Type().Elem().Kind() == reflect.Struct
	switch {
	case kindOf(n) == table && tables:
		items = []*yaml.Node{n}
	case kindOf(n) != list && tables:
		d.wrong(n, w, "a list of tables: [["+w.field+"]]")
		return
	case kindOf(n) != list:
		d.wrong(n, w, "a list of strings")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, w.item(i), out.Index(i), tag)
	}
	v.Set(out)
}

// names decodes a table whose members have user-defined names.
func (d *decoder) names(n *yaml.Node, w where, v reflect.Value, tag reflect.StructTag) {
	switch {
	case kindOf(n) == list && len(n.Content) == 0: // old files contain an empty list instead of an empty table
		return
	case kindOf(n) == list && w.field == "processes":
		if hasEffect(n) {
			d.warn(n, w.path, "a list of processes is ignored, as in flyctl: use a [processes] table that contains the command of each group")
		}
		return
	case kindOf(n) == list && v.Type().Elem() == reflect.TypeFor[Values]():
		n = headersOf(n)
	}
	if kindOf(n) != table {
		d.wrong(n, w, "a table")
		return
	}
	out := reflect.MakeMap(v.Type())
	for name, n := range members(n) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(n, w.named(name.Value), value, tag)
		out.SetMapIndex(reflect.ValueOf(name.Value), value)
	}
	v.Set(out)
}

// headersOf converts a list of headers (the syntax of old files) to a table. Each item contains a name and one or more
// values, or is itself a table of headers. Any other list is returned unchanged.
func headersOf(n *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
	for _, item := range n.Content {
		if kindOf(item) != table {
			return n
		}
		name, value := member(item, "name"), member(item, "value")
		if value == nil {
			value = member(item, "values")
		}
		if name == nil || kindOf(name) != text || value == nil {
			out.Content = append(out.Content, item.Content...)
			continue
		}
		out.Content = append(out.Content, name, value)
	}
	return out
}

// formerNames maps the former names of fields to their current names.
var formerNames = map[string]string{"compute": "vm", "mount": "mounts", "build.build_target": "build-target", "build.docker_build_target": "build-target"}

// fields decodes a table into the fields of a struct.
func (d *decoder) fields(n *yaml.Node, w where, v reflect.Value) {
	if kindOf(n) != table {
		d.wrong(n, w, "a table")
		return
	}
	known := fieldsOf(v.Type())
	for key, value := range members(n) {
		name := key.Value
		if len(d.problems) > maxProblems {
			return
		}
		if now := formerNames[w.member(name).field]; now != "" && member(n, now) == nil {
			name = now
		}
		if index, ok := known[name]; ok {
			field := v.Type().FieldByIndex(index)
			d.value(value, w.member(name), v.FieldByIndex(index), field.Tag)
			continue
		}
		if f := fieldAt(w.member(name).field); f != nil && f.Treatment == Ignored {
			if hasEffect(value) {
				d.warn(key, w.member(name).path, f.Text)
			}
			continue
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool {
			f := fieldAt(w.member(name).field)
			return f != nil && f.BourseOnly && !d.ours
		})
		if hint := suggestion(name, names); hint != "" {
			d.problem(key, w.member(name).path, "unknown field%s", hint)
		} else {
			d.problem(key, w.member(name).path, "unknown field: use %s", oneOf(names))
		}
	}
}

// fieldsOf returns the indexes of a struct's fields by JSON name, including the fields of embedded structs.
func fieldsOf(t reflect.Type) map[string][]int {
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			out[name] = f.Index
		}
	}
	return out
}

func oneOf(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// suggestion returns a hint that names the entry of words that is most similar to a misspelled word, such as " (did
// you mean app?)". It returns "" if no entry is similar.
func suggestion(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", 3
	for _, w := range words {
		if n := levenshtein.ComputeDistance(strings.ToLower(word), w); n < least && n < len(w) {
			best, least = w, n
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}
