package config_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/workload"
)

// shape describes which values a field of a Definition may have.
type shape struct{ written string }

// shapes collects the shapes of all fields of a struct type, by their paths in the table of
// fields.
func shapes(t reflect.Type, prefix string, out map[string]shape) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		path := prefix + name
		out[path] = shape{writtenAs(f)}
		below := f.Type
		if below.Kind() == reflect.Map {
			out[path+".*"] = shape{}
			path += ".*"
		}
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice || below.Kind() == reflect.Map {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct && below != reflect.TypeFor[bourse.Requirement]() {
			shapes(below, path+".", out)
		}
	}
}

// writtenAs describes how a value is written, and its range.
func writtenAs(f reflect.StructField) string {
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	in := f.Tag.Get("in")
	low, high, ranged := strings.Cut(in, "..")
	words := "`" + strings.ReplaceAll(in, "|", "`, `") + "`"
	switch {
	case t == reflect.TypeFor[bourse.Duration]():
		return "duration, " + low + " to " + high
	case t == reflect.TypeFor[config.MB](), t == reflect.TypeFor[config.GB]():
		if !ranged {
			return "size"
		}
		return "size, " + low + " to " + high
	case t == reflect.TypeFor[config.Words]():
		return "list of strings, or one string"
	case t == reflect.TypeFor[workload.Autostop]():
		return "`off`, `stop`, `suspend`"
	}
	switch t.Kind() { //nolint:exhaustive // other kinds are tables
	case reflect.String:
		if in != "" {
			return words
		}
		return "string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return "number, " + low + " to " + high
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "list of tables"
		}
		if in != "" {
			return "list of " + words
		}
		return "list of strings"
	}
	return "table"
}

// TestEveryFieldHasALine checks that the decoder and the table of fields contain the same fields.
func TestEveryFieldHasALine(t *testing.T) {
	t.Parallel()
	have := map[string]shape{}
	shapes(reflect.TypeFor[config.Definition](), "", have)
	lines := map[string]bool{}
	for _, f := range config.Fields() {
		_, is := have[f.Path]
		switch {
		case lines[f.Path]:
			t.Errorf("the table contains %s twice", f.Path)
		case is && f.Treatment == config.Ignored:
			t.Errorf("%s is described as ignored, but has a field", f.Path)
		case !is && f.Treatment != config.Ignored:
			t.Errorf("the table contains %s, which is not a field", f.Path)
		case f.Text == "" && f.Treatment != config.LikeAPI, f.Treatment == config.LikeAPI && bourse.FieldOf(f.Member) == nil:
			t.Errorf("%s has no text", f.Path)
		}
		lines[f.Path] = true
	}
	for _, path := range slices.Sorted(maps.Keys(have)) {
		if !lines[path] {
			t.Errorf("the table lacks %s", path)
		}
	}
}

// TestDocs checks that the tables in docs/config.md are up to date, and that its example is
// valid.
func TestDocs(t *testing.T) {
	const page = "../../docs/config.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- fields -->\n", "<!-- end -->"
	before, rest, _ := strings.Cut(string(text), begin)
	was, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no markers for the tables of fields", page)
	}
	_, example, _ := strings.Cut(before, "```toml\n")
	example, _, _ = strings.Cut(example, "```")
	c, err := config.Parse("bourse.toml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if app, warnings, err := c.App(config.Options{}); err != nil || len(warnings) > 0 || len(app.Groups) != 2 {
		t.Errorf("the page's example: %+v, %v, %v", app, warnings, err)
	}
	want := fieldTables()
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, was); diff != "" {
		t.Errorf("%s is out of date (update it: go test ./deploy/config -run TestDocs -update):\n%s", page, diff)
	}
}

// sections contains the page's headings, and the path prefix of each section's fields.
var sections = []struct{ prefix, heading string }{
	{"build.", "[build]"},
	{"deploy.", "[deploy]"},
	{"http_service.", "[http_service]"},
	{"services.", "[[services]]"},
	{"checks.*.", "[checks.NAME]"},
	{"machine_checks.", "[[machine_checks]]"},
	{"mounts.", "[[mounts]]"},
	{"vm.", "[[vm]]"},
	{"restart.", "[[restart]]"},
	{"files.", "[[files]]"},
	{"metrics.", "[[metrics]]"},
	{"statics.", "[[statics]]"},
	{"experimental.", "[experimental]"},
	{"groups.", "[[groups]]"},
	{"", ""},
}

func fieldTables() string {
	have := map[string]shape{}
	shapes(reflect.TypeFor[config.Definition](), "", have)
	bodies := make([]strings.Builder, len(sections))
	for _, f := range config.Fields() {
		i := slices.IndexFunc(sections, func(s struct{ prefix, heading string }) bool { return strings.HasPrefix(f.Path, s.prefix) })
		name := strings.TrimPrefix(f.Path, sections[i].prefix)
		if strings.HasSuffix(name, "*") { // the description of the enclosing table covers arbitrary names
			continue
		}
		if f.BourseOnly {
			name += "` (*Bourse only*)`"
		}
		fmt.Fprintf(&bodies[i], "| %s | %s | %s |\n", strings.TrimSuffix("`"+name+"`", "``"), have[f.Path].written, said(&f))
	}
	var out strings.Builder
	last := len(sections) - 1
	for i := range sections {
		s := sections[(i+last)%len(sections)] // begin with the last section, which contains the top-level fields
		body := bodies[(i+last)%len(sections)].String()
		heading := "Top level"
		if s.heading != "" {
			heading = "`" + s.heading + "`"
		}
		fmt.Fprintf(&out, "\n### %s\n\n| field | written as | what it does |\n|---|---|---|\n%s", heading, body)
	}
	return out.String() + "\n"
}

// said describes a field's effect in one sentence.
func said(f *config.Field) string {
	switch f.Treatment {
	case config.Unsupported:
		return "*no effect:* " + f.Text
	case config.Ignored:
		return "*no longer supported by flyctl:* " + f.Text
	case config.LikeAPI:
		api := bourse.FieldOf(f.Member)
		switch api.Image {
		case bourse.FieldRefused:
			return "*refused:* " + api.Reason
		case bourse.FieldStored:
			return "*stored, but no effect:* " + api.Reason
		case bourse.FieldSupported:
		}
		return "takes effect"
	case config.Supported:
	}
	if f.Member != "" {
		return f.Text + " (`" + strings.TrimPrefix(f.Member, "config.") + "`)"
	}
	return f.Text
}
