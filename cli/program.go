package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/bourse-dev/bourse"
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

// Version is which release this is and what it was built from.
type Version struct {
	Release string `json:"version"`          // "" when built without one
	Commit  string `json:"commit,omitempty"` // of the source, as far as known
}

// String returns one line.
func (v Version) String() string {
	s := "bourse " + cmp.Or(v.Release, "unreleased")
	if v.Commit != "" {
		s += " (" + v.Commit + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (s *Shell) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show which release this is",
		Example: "  bourse version --json",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if s.JSON {
				return s.PrintJSON(s.Version)
			}
			_, err := fmt.Fprintln(s.Out, s.Version)
			return err
		},
	}
}

// man returns the command that writes the manual: a page for every command.
func (s *Shell) man(commands func(*Shell) []Group) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual, a page for every command",
		Example: `  bourse man ~/.local/share/man/man1 && man bourse-machine-run
  bourse completion bash > /etc/bash_completion.d/bourse`,
		Args: Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// Of the program as anybody has it: the same on every host, and in every environment.
			plain := s.Env
			plain.Program, plain.Getenv = "", func(string) string { return "" }
			root := Root(&Shell{Env: plain}, commands)
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd("completion")
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // pages for all to read
				return bourse.Errorf(bourse.CodeInvalid, "%w", err)
			}
			n, err := writePages(args[0], root)
			if err != nil {
				return err
			}
			s.Note(fmt.Sprintf("%d pages in %s", n, args[0]))
			return nil
		},
	}
}

// writePages writes the pages of a command and of those below it into a directory, and
// returns how many. A page has no date: it changes when its command does.
func writePages(dir string, c *cobra.Command) (int, error) {
	n := 1
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		below, err := writePages(dir, sub)
		n += below
		if err != nil {
			return n, err
		}
	}
	var page bytes.Buffer
	c.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Bourse", Manual: "Bourse", Date: new(time.Unix(0, 0).UTC())}
	if err := doc.GenMan(c, header, &page); err != nil {
		return n, err
	}
	text := strings.Replace(page.String(), `"Jan 1970"`, `""`, 1)
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
	return n, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) //nolint:gosec // for all to read
}
