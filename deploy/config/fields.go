package config

import "slices"

// Treatment specifies whether a configuration field has an effect, and where the effect is documented.
type Treatment string

// The treatments of fields.
const (
	Supported Treatment = "done"
	LikeAPI   Treatment = "as the API" // the field becomes a member of machines' configs, which [bourse.Fields] describes
	// The field has no effect. Setting it causes a warning, unless the value would have no effect anyway, such as
	// false (see Field.NoEffect).
	Unsupported Treatment = "not done"
	// Like Unsupported, but other clients no longer support the field either, and Definition does not contain it.
	Ignored Treatment = "ignored"
)

// Field describes a field of a configuration.
type Field struct {
	Path       string // for example services.ports.port; * stands for an arbitrary name
	Treatment  Treatment
	Text       string   // the field's effect, or why it has none
	Member     string   // member of machines' configs that the field becomes, if any
	BourseOnly bool     // only bourse.toml may contain it
	NoEffect   []string // values that do not cause a warning; nil means only empty values
}

// Fields returns descriptions of all fields, grouped by section. docs/config.md is
// generated from them.
func Fields() []Field { return slices.Clone(fields) }

// fieldAt returns the description of a field, or nil if there is none.
func fieldAt(path string) *Field { return fieldsByPath[path] }

var fieldsByPath = func() map[string]*Field {
	out := map[string]*Field{}
	for i := range fields {
		out[fields[i].Path] = &fields[i]
	}
	return out
}()

// within prefixes the paths of fields with the path of their section.
func within(section string, list ...Field) []Field {
	for i := range list {
		list[i].Path = section + "." + list[i].Path
	}
	return list
}

func supported(path, text string) Field { return Field{Path: path, Treatment: Supported, Text: text} }

func into(path, to, text string) Field {
	return Field{Path: path, Treatment: Supported, Text: text, Member: to}
}

// asAPI returns the description of a field that becomes a member of machines' configs. [bourse.Fields] describes such
// members.
func asAPI(path, to string) Field { return Field{Path: path, Treatment: LikeAPI, Member: to} }

func unsupported(path, why string, idle ...string) Field {
	return Field{Path: path, Treatment: Unsupported, Text: why, NoEffect: idle}
}

func ignored(path, why string) Field { return Field{Path: path, Treatment: Ignored, Text: why} }

func ours(path, text string) Field {
	return Field{Path: path, Treatment: Supported, Text: text, BourseOnly: true}
}
