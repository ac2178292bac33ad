package serve

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// commentMark matches the comment marks of settings. In explanations, a blank follows the comment mark.
var commentMark = regexp.MustCompile(`(?m)^#([a-z])`)

// A file with all defaults contains every setting. It is valid, and removing the comment
// marks changes nothing.
func TestPrintDefaults(t *testing.T) {
	for _, roles := range [][]string{{"worker"}, {"broker"}, {"proxy"}, {"worker", "broker", "proxy"}} {
		var text strings.Builder
		if err := printDefaults(&text, roles); err != nil {
			t.Fatal(err)
		}
		for _, role := range roles {
			flags := flagsOf(bourse.Role(role))
			flags.VisitAll(func(flag *pflag.Flag) {
				if settable(flags, flag.Name) && !regexp.MustCompile(`(?m)^#?`+flag.Name+` = `).MatchString(text.String()) {
					t.Errorf("%v: %s is missing", roles, flag.Name)
				}
			})
		}
		path := file(t, text.String())
		before, err := CheckFile(path)
		if err != nil || len(before) != len(roles) {
			t.Fatalf("%v: %d servers, %v", roles, len(before), err)
		}
		if err := os.WriteFile(path, []byte(commentMark.ReplaceAllString(text.String(), "$1")), 0o600); err != nil {
			t.Fatal(err)
		}
		after, err := CheckFile(path)
		if err != nil || len(after) != len(roles) {
			t.Fatalf("%v: without comment marks: %d servers, %v", roles, len(after), err)
		}
		for i := range before {
			if !sameSettings(before[i].config, after[i].config) {
				t.Errorf("%v: the settings of the %s differ:\n%+v\n%+v", roles, before[i].Role, before[i].config, after[i].config)
			}
		}
	}
	if err := printDefaults(&strings.Builder{}, []string{"worker", "nats"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("unknown kind of server: %v, want invalid", err)
	}
}

// Every common setting exists. Settings that the file contains are omitted.
func TestCommonSettings(t *testing.T) {
	for role, names := range commonSettings {
		for _, name := range names {
			if !strings.Contains(CommonSettings(role), "\n#"+name+" = ") {
				t.Errorf("%s is not a setting of %q", name, role)
			}
			if strings.Contains(CommonSettings(role, name), "\n#"+name+" = ") {
				t.Errorf("%s occurs twice", name)
			}
		}
	}
}
