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

// programName is the program's name in messages, unless it was started under another
// name or path.
const programName = "bourse"

// commandFor returns the command that starts this program. This is the program's name if
// the shell would find the same file under that name. Otherwise it is the path that was
// used to start the program.
func commandFor(started string, lookPath func(name string) (string, error)) string {
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

// ownCommand returns the command that starts this program.
func ownCommand() string { return commandFor(os.Args[0], exec.LookPath) }

// commandPattern matches the program's name as part of a command in a message: a word must
// follow it, and no path or quote may precede it.
var commandPattern = regexp.MustCompile(`(^|[\s(|])` + programName + ` ([a-z<-])`)

// WithProgramName replaces the program's name in each command that text contains with the command
// that starts this program, so that users can copy the commands.
func (s *Shell) WithProgramName(text string) string {
	if s.Program == "" || s.Program == programName {
		return text
	}
	return commandPattern.ReplaceAllString(text, "${1}"+strings.ReplaceAll(s.Program, "$", "$$")+" ${2}")
}

// helpWithProgramName applies WithProgramName to the help of c and its subcommands.
func (s *Shell) helpWithProgramName(c *cobra.Command) {
	c.Long, c.Example = s.WithProgramName(c.Long), s.WithProgramName(c.Example)
	for _, sub := range c.Commands() {
		s.helpWithProgramName(sub)
	}
}

// Version describes the release and the source commit that the program was built from.
type Version struct {
	Release string `json:"version"`          // "" if this is not a release build
	Commit  string `json:"commit,omitempty"` // commit of the source, if known
}

// String returns the version on one line.
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
		Short:   "Print the version",
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

// man returns the command that writes the manual pages.
func (s *Shell) man(commands func(*Shell) []Group) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages for all commands to a directory",
		Example: `  bourse man ~/.local/share/man/man1 && man bourse-machine-run
  bourse completion bash > /etc/bash_completion.d/bourse`,
		Args: Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// Do not use this process's name and environment, so that the pages are the
			// same everywhere.
			plain := s.Env
			plain.Program, plain.Getenv = "", func(string) string { return "" }
			root := Root(&Shell{Env: plain}, commands)
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd("completion")
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // world-readable pages
				return bourse.Errorf(bourse.CodeInvalid, "%w", err)
			}
			n, err := writePages(args[0], root)
			if err != nil {
				return err
			}
			s.Note(fmt.Sprintf("wrote %d pages to %s", n, args[0]))
			return nil
		},
	}
}

// writePages writes the man pages of c and its subcommands to dir and returns the number of
// pages. The pages contain no date, so that they change only if a command does.
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
	return n, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) //nolint:gosec // world-readable
}
