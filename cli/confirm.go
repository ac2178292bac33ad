package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// CanAsk reports whether standard input and standard error are a terminal.
func (s *Shell) CanAsk() bool { return s.In.TTY && s.Err.TTY }

// BindYes adds the flag --yes to a destructive command.
func BindYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "skip the confirmation")
}

// YesFlag returns " --yes" if the flag was given, for a hint that repeats the command:
// without it, the suggested command would fail with another hint.
func YesFlag(yes bool) string {
	if yes {
		return " --yes"
	}
	return ""
}

// Confirm asks a person to confirm a destructive command, unless yes is set. Without a
// terminal it returns CodeInvalid, so that a script never destroys anything by accident.
func (s *Shell) Confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.CanAsk() {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%s? Standard input is not a terminal, so nobody can confirm it", question), "--yes")
	}
	fmt.Fprintf(s.Err, "%s? [y/N] ", Clean(question))
	line, err := s.ReadInput(ctx, func(r io.Reader) ([]byte, error) { return bufio.NewReader(r).ReadBytes('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(string(line))) {
	case "y", "yes":
		return nil
	}
	return bourse.Errorf(bourse.CodeCanceled, "canceled: nothing was changed")
}
