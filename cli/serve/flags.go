package serve

import (
	"strconv"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// binder binds flags to a config. It records parse errors instead of returning them to
// pflag, so that all problems can be reported at once.
type binder struct {
	*pflag.FlagSet
	rejected map[string]error // parse errors, by flag
}

// note records a flag's error, or clears it if err is nil.
func (b binder) note(name string, err error) {
	if delete(b.rejected, name); err != nil {
		b.rejected[name] = cli.FlagError("--"+name, err)
	}
}

// bindParsed binds a flag to the value that parse returns for its text. Empty text means
// the zero value, unless the flag has a default.
func bindParsed[T any](b binder, to *T, name, value, usage string, parse func(string) (T, error)) {
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

// bindOptional binds a flag that is true, false, or nil if its text is empty.
func bindOptional(b binder, to **bool, name, usage string) {
	bindParsed(b, to, name, "", usage, func(text string) (*bool, error) {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s: use true or false", bourse.Quoted(text))
		}
		return &on, nil
	})
	flag := b.Lookup(name)
	flag.NoOptDefVal = "true"
	flag.Value.(*parsed).kind = "bool" //nolint:forcetypeassert // bindParsed has just created it
}

// bindAll binds a repeatable flag. It calls parse with all of the flag's values so far,
// each time it reads one.
func bindAll[T any](b binder, to *T, name, usage string, parse func([]string) (T, error)) {
	var list []string
	b.Var(&parsed{"", "stringArray", func(text string) {
		var err error
		list = append(list, text)
		*to, err = parse(list)
		b.note(name, err)
	}}, name, usage)
}

// bindEach binds a repeatable flag. It calls add with each value.
func bindEach(b binder, name, usage string, add func(string) error) {
	b.Var(&parsed{"", "stringArray", func(text string) {
		if err := add(text); err != nil {
			b.note(name, err)
		}
	}}, name, usage)
}

// parsed implements pflag.Value for flags that have their own parsing function.
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
