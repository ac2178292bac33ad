package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// programName is what the program is called in texts, unless it was started
// otherwise.
const programName = "bourse"

// programOf returns what to type for this program: its name alone when the
// shell finds it so, or else the path that it was started with.
func programOf(started string, lookPath func(name string) (string, error)) string {
	name := filepath.Base(started)
	if name == started {
		return started
	}
	found, err := lookPath(name)
	if err != nil {
		return started
	}
	a, err1 := os.Stat(found)
	b, err2 := os.Stat(started)
	if err1 == nil && err2 == nil && os.SameFile(a, b) {
		return name
	}
	return started
}

// started returns what to type for this process's program.
func started() string { return programOf(os.Args[0], exec.LookPath) }

// typedPattern finds commands in texts for people: the program's name, then a
// word. What stands in a path or in quotes is no command.
var typedPattern = regexp.MustCompile(`(^|[\s(|])` + programName + ` ([a-z<-])`)

// Typed returns a text for people with its commands as they are to be typed
// here: beginning with the path that the program was started with.
func (s *Shell) Typed(text string) string {
	if s.Program == "" || s.Program == programName {
		return text
	}
	return typedPattern.ReplaceAllString(text, "${1}"+strings.ReplaceAll(s.Program, "$", "$$")+" ${2}")
}

// typedHelp puts the program's path into the help of every command.
func (s *Shell) typedHelp(c *cobra.Command) {
	c.Long, c.Example = s.Typed(c.Long), s.Typed(c.Example)
	for _, sub := range c.Commands() {
		s.typedHelp(sub)
	}
}
