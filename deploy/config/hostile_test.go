package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy/config"
)

// TestHostileFiles checks that files that are too large, too deep or recursive are refused cheaply.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	const n = 1 << 16
	for name, c := range map[string]struct{ file, text, want string }{
		"too large":            {"fly.toml", strings.Repeat("#", config.MaxBytes+1), "at most 1048576"},
		"no text":              {"fly.toml", "app = \"\xff\"", "1:8: not a text file"},
		"a NUL byte":           {"fly.json", "{\"app\": \"a\x00\"}", "1:11: not a text file"},
		"deep lists":           {"fly.toml", "env = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested deeper"},
		"deep tables":          {"fly.toml", "[" + strings.Repeat("a.", n) + "a]", "nested deeper"},
		"deep keys":            {"fly.toml", strings.Repeat("a.", n) + "a = 1", "nested deeper"},
		"deep inline tables":   {"fly.toml", strings.Repeat("a={", 5000) + strings.Repeat("}", 5000), "nested deeper"},
		"deep JSON":            {"fly.json", strings.Repeat(`{"a":`, n/2), "nested deeper"},
		"deep YAML":            {"fly.yaml", strings.Repeat("[", n), "invalid YAML"},
		"deep YAML by lines":   {"fly.yaml", strings.Repeat("- ", 9000), "nested deeper"},
		"many tables":          {"fly.toml", strings.Repeat("[[env]]\n", n/2), "more than 10000 values"},
		"many tables in one":   {"fly.toml", "[env]\n" + strings.Repeat("[[services.ports]]\n", n/8), "fly.toml"},
		"many values":          {"fly.json", `{"env":[` + strings.Repeat("1,", n) + `1]}`, "more than 10000 values"},
		"too many fields":      {"fly.toml", manyFields(20_000), "more than 10000 values"},
		"many unknown fields":  {"fly.toml", manyFields(2_000), "and more"},
		"a number of a number": {"fly.json", `{"swap_size_mb":1` + strings.Repeat("0", n) + `}`, "use a whole number"},
		"aliases of aliases": {
			"fly.yaml", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
				"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n", "more than 10000 values",
		},
	} {
		_, err := config.Parse(c.file, []byte(c.text))
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), c.want) {
			message := bourse.MessageOf(err)
			t.Errorf("%s: %.200s, want %q", name, message, c.want)
		}
		if len(bourse.MessageOf(err)) > 64<<10 {
			t.Errorf("%s: an error of %d bytes", name, len(bourse.MessageOf(err)))
		}
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "field%d = 1\n", i)
	}
	return b.String()
}

// FuzzParse checks that a parsed configuration results in the same app after it is written
// as JSON or TOML and parsed again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/apps/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(0), text)
		if c, err := config.Parse("bourse.toml", text); err == nil {
			if written, err := c.JSON(); err == nil {
				f.Add(byte(1), []byte(written))
			}
		}
	}
	f.Add(byte(2), []byte("app: a\nservices:\n  - internal_port: 80\n    ports: [{port: 80, handlers: [http]}]\nenv: &e {A: 1, B: no}\nchecks: {a: {headers: *e}}\n"))
	f.Fuzz(func(t *testing.T, syntax byte, text []byte) {
		name := []string{"bourse.toml", "bourse.json", "bourse.yaml"}[syntax%3]
		c, err := config.Parse(name, text)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%v has code %s", err, bourse.CodeOf(err))
			}
			return
		}
		app, _, err := c.App(config.Options{BuildLater: true})
		written, problem := c.JSON()
		if problem != nil {
			t.Fatal(problem)
		}
		inTOML, problem := config.TOML(written)
		if problem != nil {
			t.Fatal(problem)
		}
		for name, text := range map[string][]byte{"bourse.json": written, "bourse.toml": inTOML} {
			again, problem := config.Parse(name, text)
			if problem != nil {
				t.Fatalf("%s cannot be parsed again: %v\n%s", name, problem, text)
			}
			sameApp, _, sameErr := again.App(config.Options{BuildLater: true})
			if (err == nil) != (sameErr == nil) {
				t.Fatalf("%s: %v, was %v", name, sameErr, err)
			}
			if diff := cmp.Diff(app, sameApp); diff != "" {
				t.Errorf("%s results in a different app:\n%s", name, diff)
			}
		}
		if _, problem := json.Marshal(app); problem != nil {
			t.Error(problem)
		}
	})
}
