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

	"github.com/bourse-dev/bourse"
)

// decoder fills a Definition from a tree, whatever syntax that came from.
type decoder struct {
	ours     bool                // the file may have what is Bourse's own
	at       map[string]Position // of each value, by its path
	unacted  map[string]bool     // fields that a warning names as not acted on
	warnings []Warning
	problems Problems
}

// where is a place in a definition: as it is shown, services[0].ports, and as
// [Fields] has it, services.ports.
type where struct{ path, field string }

func (w where) member(name string) where { return w.below(name, name) }

// named is a member of a table whose names are the author's.
func (w where) named(name string) where { return w.below(name, "*") }

func (w where) below(name, field string) where {
	if w.path == "" {
		return where{name, field}
	}
	return where{w.path + "." + name, w.field + "." + field}
}

func (w where) item(i int) where { return where{w.path + "[" + strconv.Itoa(i) + "]", w.field} }

func (d *decoder) problem(at Position, field, format string, args ...any) {
	if len(d.problems) <= maxProblems {
		d.problems = append(d.problems, Problem{at, field, fmt.Sprintf(format, args...)})
	}
}

// wrong says that a value is not what is allowed.
func (d *decoder) wrong(n *node, w where, allowed string) {
	d.problem(n.at, w.path, "%s: use %s", n.shown(), allowed)
}

// value decodes n into v, a field with these tags.
func (d *decoder) value(n *node, w where, v reflect.Value, tag reflect.StructTag) {
	if n.kind == null {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	d.at[w.path] = n.at
	if !d.may(n, w) {
		return
	}
	if r, ok := reflect.TypeAssert[reader](v.Addr()); ok {
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
	case *Concurrency:
		if n.kind == text {
			if allowed := p.limits(n); allowed != "" {
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
		*p = plain(n)
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

// scalar decodes what is one word or number.
func (d *decoder) scalar(n *node, w where, v reflect.Value, tag reflect.StructTag) {
	in := tag.Get("in")
	switch v.Kind() { //nolint:exhaustive // a Definition has no others
	case reflect.String:
		words := strings.Split(in, "|")
		switch {
		case n.kind != text && in == "":
			d.wrong(n, w, "a text")
		case n.kind != text || in != "" && !slices.Contains(words, n.text):
			d.wrong(n, w, oneOf(words)+near(n.text, words))
		default:
			v.SetString(n.text)
		}
	case reflect.Bool:
		if n.kind != truth {
			d.wrong(n, w, "true or false")
			return
		}
		v.SetBool(n.truth)
	case reflect.Int64:
		low, high, _ := strings.Cut(in, "..")
		least, _ := strconv.ParseInt(low, 10, 64)
		most, _ := strconv.ParseInt(high, 10, 64)
		if tag.Get("quoted") != "" && n.kind == text {
			if number, err := strconv.ParseInt(n.text, 10, 64); err == nil {
				n = &node{kind: whole, at: n.at, text: n.text, whole: number}
			}
		}
		if n.kind != whole || n.whole < least || n.whole > most {
			d.wrong(n, w, "a whole number from "+low+" to "+high)
			return
		}
		v.SetInt(n.whole)
	case reflect.Float64:
		switch n.kind {
		case whole:
			v.SetFloat(float64(n.whole))
		case fraction:
			v.SetFloat(n.real)
		case null, text, truth, date, list, table:
			d.wrong(n, w, "a number")
		}
	}
}

// amount looks whether a size is in its range.
func (d *decoder) amount(n *node, w where, v reflect.Value, in string) {
	low, high, ok := strings.Cut(in, "..")
	if !ok || v.Kind() != reflect.Int64 {
		return
	}
	unit := int64(1)
	if v.Type() == reflect.TypeFor[GB]() {
		unit = 1024
	}
	least, _ := mebibytes(&node{kind: text, text: low}, unit)
	most, _ := mebibytes(&node{kind: text, text: high}, unit)
	if v.Int()*unit < least || v.Int()*unit > most {
		d.wrong(n, w, low+" to "+high)
	}
}

// duration decodes a time: a text with a unit, or a number where its unit is known.
func (d *decoder) duration(n *node, w where, into *bourse.Duration, tag reflect.StructTag) {
	low, high, _ := strings.Cut(tag.Get("in"), "..")
	least, _ := time.ParseDuration(low)
	most, _ := time.ParseDuration(high)
	bare, _ := time.ParseDuration(tag.Get("bare"))
	allowed := "a time such as \"15s\", from " + low + " to " + high
	if bare > 0 {
		allowed += "; a number alone is of " + map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}[bare]
	}
	var t time.Duration
	var err error
	switch {
	case n.kind == text && n.text == "": // old files have it for a time that is not set
		return
	case n.kind == text:
		if t, err = time.ParseDuration(n.text); err != nil && bare > 0 { // a number as a text
			var number int64
			if number, err = strconv.ParseInt(n.text, 10, 32); err == nil {
				t = time.Duration(number) * bare
			}
		}
	case n.kind == whole && bare > 0 && n.whole <= int64(most/bare) && n.whole >= 0:
		t = time.Duration(n.whole) * bare
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || t < least || t > most {
		d.wrong(n, w, allowed)
		return
	}
	*into = bourse.Duration(t)
}

// list decodes a list; one table may stand for a list of tables.
func (d *decoder) list(n *node, w where, v reflect.Value, tag reflect.StructTag) {
	items := n.items
	tables := v.Type().Elem().Kind() == reflect.Struct
	switch {
	case n.kind == table && tables:
		items = []*node{n}
	case n.kind != list && tables:
		d.wrong(n, w, "a list of tables: [["+w.field+"]]")
		return
	case n.kind != list:
		d.wrong(n, w, "a list of texts")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, w.item(i), out.Index(i), tag)
	}
	v.Set(out)
}

// names decodes a table whose names are the author's.
func (d *decoder) names(n *node, w where, v reflect.Value, tag reflect.StructTag) {
	switch {
	case n.kind == list && len(n.items) == 0: // old files have it
		return
	case n.kind == list && w.field == "processes":
		if asks(n) {
			d.warn(n.at, w.path, "a list of processes is ignored, as flyctl does: write [processes], with the command of each group")
		}
		return
	case n.kind == list && v.Type().Elem() == reflect.TypeFor[Values]():
		n = headersOf(n)
	}
	if n.kind != table {
		d.wrong(n, w, "a table")
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, m := range n.members {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(m.value, w.named(m.name), value, tag)
		out.SetMapIndex(reflect.ValueOf(m.name), value)
	}
	v.Set(out)
}

// headersOf returns the table that a list of headers stands for in old files: each
// item has a name with its value or values, or is a table of headers itself. It
// returns n if it is another list.
func headersOf(n *node) *node {
	out := &node{kind: table, at: n.at}
	for _, item := range n.items {
		if item.kind != table {
			return n
		}
		name, value := item.member("name"), item.member("value")
		if value == nil {
			value = item.member("values")
		}
		if name == nil || name.kind != text || value == nil {
			for _, m := range item.members {
				out.put(m.name, m.at, m.value)
			}
			continue
		}
		out.put(name.text, name.at, value)
	}
	return out
}

// formerly are fields by the names that they had.
var formerly = map[string]string{"compute": "vm", "mount": "mounts", "build.build_target": "build-target", "build.docker_build_target": "build-target"}

// fields decodes a table whose names are the fields of a struct.
func (d *decoder) fields(n *node, w where, v reflect.Value) {
	if n.kind != table {
		d.wrong(n, w, "a table")
		return
	}
	known := fieldsOf(v.Type())
	for _, m := range n.members {
		if len(d.problems) > maxProblems {
			return
		}
		if name := formerly[w.member(m.name).field]; name != "" && n.member(name) == nil {
			m.name = name
		}
		if index, ok := known[m.name]; ok {
			field := v.Type().FieldByIndex(index)
			d.value(m.value, w.member(m.name), v.FieldByIndex(index), field.Tag)
			continue
		}
		if f := fieldAt(w.member(m.name).field); f != nil && f.Treatment == Ignored {
			if asks(m.value) {
				d.warn(m.at, w.member(m.name).path, f.Text)
			}
			continue
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool {
			f := fieldAt(w.member(name).field)
			return f != nil && f.Ours && !d.ours
		})
		if hint := near(m.name, names); hint != "" {
			d.problem(m.at, w.member(m.name).path, "there is no such field%s", hint)
		} else {
			d.problem(m.at, w.member(m.name).path, "there is no such field: use %s", oneOf(names))
		}
	}
}

// fieldsOf returns the fields of a struct by name, those of embedded ones among them.
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

// near returns a question for the word that may have been meant, "" when none is near.
func near(word string, words []string) string {
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
