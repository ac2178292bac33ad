package flycompat

import (
	"context"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/bourse-dev/bourse"
)

// object answers for one value of a GraphQL type: each field is a value that JSON
// has, an object, a list of them, or a finder of one of these. A missing field is
// null.
type object map[string]any

// typename is the field that has the name of an object's type.
const typename = "__typename"

// finder finds a field's value when it is asked for.
type finder func(context.Context, arguments) (any, error)

// arguments are a field's, with the values of variables.
type arguments map[string]any

// text returns an argument that is a string, "" if there is none.
func (a arguments) text(name string) string {
	s, _ := a[name].(string)
	return s
}

// count returns an argument that is a whole number, within bounds.
func (a arguments) count(name string, otherwise, most int) int {
	switch n := a[name].(type) {
	case float64: // of a variable
		return int(min(max(n, 0), float64(most)))
	case int64:
		return int(min(max(n, 0), int64(most)))
	}
	return otherwise
}

// execution is one query while it is answered. It belongs to one goroutine.
type execution struct {
	doc    *ast.QueryDocument
	vars   map[string]any
	work   int // that is left, see maxWork
	asked  int // see maxAsked
	errors []replyError
}

// selected is a field that a reply gets, of all selections that name it.
type selected struct {
	key   string
	first *ast.Field
	set   ast.SelectionSet
}

// object returns what a query selects of an object. It is false when the query is
// too costly: then the reply has no data.
func (x *execution) object(ctx context.Context, set ast.SelectionSet, of object, path []any) (map[string]any, bool) {
	if len(path) > 2*maxDepth { // an index for each list
		return nil, x.tooMuch("it is more than %d fields deep", maxDepth)
	}
	fields, ok := x.collect(nil, set, of, map[string]bool{})
	if !ok {
		return nil, false
	}
	out := make(map[string]any, len(fields))
	for _, f := range fields {
		at := append(slices.Clip(path), f.key)
		value, err := x.field(ctx, f.first, of, path)
		if err != nil {
			x.fail(at, err)
		}
		if out[f.key], ok = x.value(ctx, f, value, at); !ok {
			return nil, false
		}
	}
	return out, true
}

// value returns what a query selects of a field's value.
func (x *execution) value(ctx context.Context, f selected, value any, path []any) (any, bool) {
	if x.work--; x.work < 0 {
		return nil, x.tooMuch("it asks for too many values")
	}
	switch v := value.(type) {
	case object:
		if v == nil {
			return nil, true
		}
		return x.object(ctx, f.set, v, path)
	case []object:
		out := make([]any, len(v))
		for i, each := range v {
			var ok bool
			if out[i], ok = x.object(ctx, f.set, each, append(slices.Clip(path), i)); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return value, true
}

// field returns the value of an object's field.
func (x *execution) field(ctx context.Context, f *ast.Field, of object, path []any) (any, error) {
	value, there := of[f.Name]
	if !there && len(path) == 0 {
		return nil, bourse.Errorf(bourse.CodeNotFound, "Bourse does not offer %s: docs/compatibility.md says what it does", bourse.Quoted(f.Name))
	}
	find, ok := value.(finder)
	if !ok {
		return value, nil
	}
	if x.asked--; x.asked < 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the query asks for more than %d things: send several", maxAsked)
	}
	args := arguments{}
	for _, a := range f.Arguments {
		v, err := a.Value.Value(x.vars)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "argument %s: %w", bourse.Quoted(a.Name), err)
		}
		args[a.Name] = v
	}
	return find(ctx, args)
}

// collect finds the fields that a selection has of an object, in their order,
// those of fragments included (GraphQL, section 6.3.2).
func (x *execution) collect(fields []selected, set ast.SelectionSet, of object, seen map[string]bool) ([]selected, bool) {
	for _, s := range set {
		if x.work--; x.work < 0 {
			return nil, x.tooMuch("it has too many selections")
		}
		var more ast.SelectionSet
		switch s := s.(type) {
		case *ast.Field:
			if !x.included(s.Directives) {
				continue
			}
			at := slices.IndexFunc(fields, func(f selected) bool { return f.key == s.Alias })
			if at < 0 {
				at, fields = len(fields), append(fields, selected{key: s.Alias, first: s})
			}
			fields[at].set = append(slices.Clip(fields[at].set), s.SelectionSet...)
		case *ast.InlineFragment:
			if x.included(s.Directives) && of.is(s.TypeCondition) {
				more = s.SelectionSet
			}
		case *ast.FragmentSpread:
			d := x.doc.Fragments.ForName(s.Name)
			if !seen[s.Name] && x.included(s.Directives) && d != nil && of.is(d.TypeCondition) {
				seen[s.Name], more = true, d.SelectionSet
			}
		}
		if more == nil {
			continue
		}
		var ok bool
		if fields, ok = x.collect(fields, more, of, seen); !ok {
			return nil, false
		}
	}
	return fields, true
}

// is reports whether a fragment on a type is about the object: it is of that type,
// or does not say of which it is.
func (o object) is(condition string) bool {
	of, known := o[typename].(string)
	return condition == "" || !known || of == condition
}

// included reports what the directives skip and include say.
func (x *execution) included(directives ast.DirectiveList) bool {
	says := func(name string, otherwise bool) bool {
		d := directives.ForName(name)
		if d == nil {
			return otherwise
		}
		when := d.Arguments.ForName("if")
		if when == nil {
			return otherwise
		}
		v, err := when.Value.Value(x.vars)
		b, ok := v.(bool)
		return err == nil && ok && b
	}
	return says("include", true) && !says("skip", false)
}

// maxErrors bounds how many errors one reply has.
const maxErrors = 100

func (x *execution) fail(path []any, err error) {
	if len(x.errors) == maxErrors {
		return
	}
	code := bourse.CodeOf(err)
	x.errors = append(x.errors, replyError{
		Message: bourse.MessageOf(err), Path: path, Extensions: map[string]string{"code": strings.ToUpper(string(code))},
	})
}

// tooMuch fails the whole query, and returns false.
func (x *execution) tooMuch(format string, args ...any) bool {
	x.errors = nil
	x.fail(nil, bourse.Errorf(bourse.CodeInvalid, "the query is too large: "+format, args...))
	return false
}
