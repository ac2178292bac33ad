package serve

import (
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse/cli"
)

// binder binds flags to a config. What cannot be read is noted and is no error
// of pflag's, so that Validate reports all problems at once.
type binder struct {
	*pflag.FlagSet
	rejected map[string]error // by flag
}

// note notes the error of a flag, or that it has none.
func (b binder) note(name string, err error) {
	if delete(b.rejected, name); err != nil {
		b.rejected[name] = cli.FlagError("--"+name, err)
	}
}

// reads binds a flag to what parse makes of its text. "" is the zero value,
// unless the flag has a default.
func reads[T any](b binder, to *T, name, value, usage string, parse func(string) (T, error)) {
	set := func(text string) {
		var err error
		if *to, err = parse(text); text == "" && value == "" {
			*to, err = *new(T), nil
		}
		b.note(name, err)
	}
	if value != "" {
		set(value)
	}
	b.Var(&parsed{value, "string", set}, name, usage)
}

// readsAll binds a flag that may be repeated to what parse makes of all its
// texts.
func readsAll[T any](b binder, to *T, name, usage string, parse func([]string) (T, error)) {
	var list []string
	b.Var(&parsed{"", "stringArray", func(text string) {
		var err error
		list = append(list, text)
		*to, err = parse(list)
		b.note(name, err)
	}}, name, usage)
}

// readsEach binds a flag that may be repeated to what adds each of its texts.
func readsEach(b binder, name, usage string, add func(string) error) {
	b.Var(&parsed{"", "stringArray", func(text string) {
		if err := add(text); err != nil {
			b.note(name, err)
		}
	}}, name, usage)
}

// parsed is a flag's value.
type parsed struct {
	text, kind string
	set        func(text string)
}

// String implements pflag.Value.
func (p *parsed) String() string { return p.text }

// Type implements pflag.Value.
func (p *parsed) Type() string { return p.kind }

// Set implements pflag.Value.
func (p *parsed) Set(text string) error {
	p.text = text
	p.set(text)
	return nil
}
