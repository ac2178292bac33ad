package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/bourse-dev/bourse"
)

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
