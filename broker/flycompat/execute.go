package flycompat

import (
	"context"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/bourse-dev/bourse"
)

// object is one value of a GraphQL object type. Each field is a JSON value, an object, a
// list of objects, or a resolver that returns one of these. A missing field is null.
type object map[string]any

// typename is the name of the field that contains the name of an object's type.
const typename = "__typename"

// resolver returns a field's value. It is called only if a query selects the field.
type resolver func(context.Context, arguments) (any, error)

// arguments contains a field's arguments, with variables replaced by their values.
type arguments map[string]any

// text returns a string argument, or "" if it is missing.
func (a arguments) text(name string) string {
	s, _ := a[name].(string)
	return s
}

// count returns an integer argument, clamped to the range from 0 to limit. If the argument is
// missing, it returns fallback.
func (a arguments) count(name string, fallback, limit int) int {
	switch n := a[name].(type) {
	case float64: // values of variables have this type
		return int(min(max(n, 0), float64(limit)))
	case int64:
		return int(min(max(n, 0), int64(limit)))
	}
	return fallback
}

// execution is the state of one query's execution. It must not be used concurrently.
type execution struct {
	doc    *ast.QueryDocument
	vars   map[string]any
	work   int // remaining work; see maxWork
	calls  int // remaining calls to /v1; see maxCalls
	errors []replyError
}

// selected is one field of the reply. It combines all selections of that field in the query.
type selected struct {
	key   string
	first *ast.Field
	set   ast.SelectionSet
}

// object returns the selected fields of an object. It returns false if the query is too expensive;
// the reply then contains no data.
func (x *execution) object(ctx context.Context, set ast.SelectionSet, of object, path []any) (map[string]any, bool) {
	if len(path) > 2*maxDepth { // twice maxDepth, because each list adds an index to the path
		return nil, x.failQuery("its depth exceeds %d fields", maxDepth)
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

// value returns the selected parts of a field's value.
func (x *execution) value(ctx context.Context, f selected, value any, path []any) (any, bool) {
	if x.work--; x.work < 0 {
		return nil, x.failQuery("it selects too many values")
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
	value, exists := of[f.Name]
	if !exists && len(path) == 0 {
		return nil, bourse.Errorf(bourse.CodeNotFound, "Bourse does not support %s: see docs/compatibility.md", bourse.Quoted(f.Name))
	}
	resolve, ok := value.(resolver)
	if !ok {
		return value, nil
	}
	if x.calls--; x.calls < 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the query needs more than %d calls: send several queries", maxCalls)
	}
	args := arguments{}
	for _, a := range f.Arguments {
		v, err := a.Value.Value(x.vars)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "argument %s: %w", bourse.Quoted(a.Name), err)
		}
		args[a.Name] = v
	}
	return resolve(ctx, args)
}

// collect evaluates a selection set on an object, and appends the selected fields to fields, in order. It includes
// those selected by fragments (GraphQL specification, section 6.3.2).
func (x *execution) collect(fields []selected, set ast.SelectionSet, of object, seen map[string]bool) ([]selected, bool) {
	for _, s := range set {
		if x.work--; x.work < 0 {
			return nil, x.failQuery("it has too many selections")
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

// is reports whether a fragment with the given type condition applies to the object. It applies if
// the object has that type or its type is unknown.
func (o object) is(condition string) bool {
	of, known := o[typename].(string)
	return condition == "" || !known || of == condition
}

// included evaluates the skip and include directives of a selection.
func (x *execution) included(directives ast.DirectiveList) bool {
	value := func(name string, fallback bool) bool {
		d := directives.ForName(name)
		if d == nil {
			return fallback
		}
		when := d.Arguments.ForName("if")
		if when == nil {
			return fallback
		}
		v, err := when.Value.Value(x.vars)
		b, ok := v.(bool)
		return err == nil && ok && b
	}
	return value("include", true) && !value("skip", false)
}

// maxErrors is the maximum number of errors in one reply.
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

// failQuery makes the whole query fail with the given error. It always returns false.
func (x *execution) failQuery(format string, args ...any) bool {
	x.errors = nil
	x.fail(nil, bourse.Errorf(bourse.CodeInvalid, "the query is too large: "+format, args...))
	return false
}
