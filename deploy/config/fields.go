package config

import "slices"

// Treatment is what becomes of a field of a file.
type Treatment string

// The treatments.
const (
	Done    Treatment = "done"
	AsAPI   Treatment = "as the API" // it becomes a member of machines' configs, which [bourse.Fields] speaks of
	NotDone Treatment = "not done"   // a warning names it, unless it asks for nothing
	Ignored Treatment = "ignored"    // it has no field, because other clients have given it up; a warning names it, unless it asks for nothing
)

// Field is what becomes of one field of a file.
type Field struct {
	Path      string // services.ports.port; * is any name of a table whose names are the author's
	Treatment Treatment
	Text      string   // what it does, or why nothing
	To        string   // the member of machines' configs that it becomes
	Ours      bool     // only bourse.toml may have it
	Idle      []string // values that ask for nothing; default: the empty ones
}

// Fields returns the table of all fields, section by section: docs/config.md is
// written from it.
func Fields() []Field { return slices.Clone(fields) }

// fieldAt returns the line about a field, nil when there is none.
func fieldAt(path string) *Field { return fieldsByPath[path] }

var fieldsByPath = func() map[string]*Field {
	out := map[string]*Field{}
	for i := range fields {
		out[fields[i].Path] = &fields[i]
	}
	return out
}()

// within are the fields of a section.
func within(section string, list ...Field) []Field {
	for i := range list {
		list[i].Path = section + "." + list[i].Path
	}
	return list
}

func done(path, text string) Field { return Field{Path: path, Treatment: Done, Text: text} }

func into(path, to, text string) Field { return Field{Path: path, Treatment: Done, Text: text, To: to} }

// asAPI is a field of which [bourse.Fields] says what becomes.
func asAPI(path, to string) Field { return Field{Path: path, Treatment: AsAPI, To: to} }

func not(path, why string, idle ...string) Field {
	return Field{Path: path, Treatment: NotDone, Text: why, Idle: idle}
}

func ignored(path, why string) Field { return Field{Path: path, Treatment: Ignored, Text: why} }

func ours(path, text string) Field { return Field{Path: path, Treatment: Done, Text: text, Ours: true} }
