package config

import "slices"

// Treatment tells how a field of a file is treated.
type Treatment string

// The treatments.
const (
	Done    Treatment = "done"
	AsAPI   Treatment = "as the API" // it becomes a member of machines' configs, which [bourse.Fields] describes
	NotDone Treatment = "not done"   // it has no effect, and causes a warning unless its value requests nothing
	Ignored Treatment = "ignored"    // other clients no longer support it either; it has no field in Definition, and causes a warning unless its value requests nothing
)

// Field describes a field of a file.
type Field struct {
	Path      string // services.ports.port; * stands for any name in a table with arbitrary names
	Treatment Treatment
	Text      string   // what it does, or why it has no effect
	To        string   // the member of machines' configs that it becomes
	Ours      bool     // only bourse.toml may contain it
	Idle      []string // values that request nothing; default: empty ones
}

// Fields returns descriptions of all fields, section by section. docs/config.md is generated from it.
func Fields() []Field { return slices.Clone(fields) }

// fieldAt returns the description of a field, nil if there is none.
func fieldAt(path string) *Field { return fieldsByPath[path] }

var fieldsByPath = func() map[string]*Field {
	out := map[string]*Field{}
	for i := range fields {
		out[fields[i].Path] = &fields[i]
	}
	return out
}()

// within returns the fields of a section.
func within(section string, list ...Field) []Field {
	for i := range list {
		list[i].Path = section + "." + list[i].Path
	}
	return list
}

func done(path, text string) Field { return Field{Path: path, Treatment: Done, Text: text} }

func into(path, to, text string) Field { return Field{Path: path, Treatment: Done, Text: text, To: to} }

// asAPI returns a field that [bourse.Fields] describes.
func asAPI(path, to string) Field { return Field{Path: path, Treatment: AsAPI, To: to} }

func not(path, why string, idle ...string) Field {
	return Field{Path: path, Treatment: NotDone, Text: why, Idle: idle}
}

func ignored(path, why string) Field { return Field{Path: path, Treatment: Ignored, Text: why} }

func ours(path, text string) Field { return Field{Path: path, Treatment: Done, Text: text, Ours: true} }
