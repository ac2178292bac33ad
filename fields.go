package bourse

import "strings"

// Treatment is what becomes of a member of a request for a machine.
type Treatment string

// The treatments. What would lose data if it were only kept, or promise a
// safety that there is not, is refused.
const (
	ActedOn  Treatment = "acted on"
	JustKept Treatment = "kept"    // stored and given back, and nothing else
	Refused  Treatment = "refused" // CodeInvalid, before anything is stored
)

// Field is what becomes of members of a request for a machine, by the kind of
// its image.
type Field struct {
	Path              string // from the body down, config.guest.cpus: [] is each item of a list, * each name of a map
	Below             string // the members below Path that are treated like it, separated by spaces; empty if Path itself is the member
	Host, Pull, Image Treatment
	Reason            string   // why it is not acted on everywhere
	Idle              []string // values that ask for nothing, beside the empty ones
}

// By returns the treatment for a kind of image.
func (f *Field) By(kind ImageKind) Treatment {
	switch kind {
	case HostImage:
		return f.Host
	case PollerImage:
		return f.Pull
	case RegistryImage:
	}
	return f.Image
}

// Err is the refusal of a field: CodeInvalid.
func (f *Field) Err() error {
	return Errorf(CodeInvalid, "invalid %s: %s", f.Name(), f.Reason)
}

// FieldOf returns the line about a member, or nil if the table has none. As
// in encoding/json, the case of letters does not matter.
func FieldOf(path string) *Field { return fieldsByPath[strings.ToLower(path)] }

// Opens reports whether path leads to members with lines of their own for this
// kind of image, because only the members below it are acted on.
func (f *Field) Opens(path string, kind ImageKind) bool {
	return f.Below != "" && f.By(kind) == ActedOn && strings.EqualFold(f.Path, path)
}

// Name is the path as people write it.
func (f *Field) Name() string { return strings.TrimRight(f.Path, "[].*") }

// Warning says that a member of a request is not acted on.
type Warning struct {
	Field   string `json:"field"` // config.guest.kernel_args
	Message string `json:"message"`
}

// String is the warning in one line, without control characters.
func (w Warning) String() string { return w.Field + ": " + w.Message }

var fieldsByPath = func() map[string]*Field {
	out := map[string]*Field{}
	for i := range fields {
		f := &fields[i]
		out[f.Path] = f
		for below := range strings.FieldsSeq(f.Below) {
			out[f.Path+"."+below] = f
		}
	}
	return out
}()
