package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bourse-dev/bourse"
)

// CanAsk reports whether a person is there to answer.
func (s *Shell) CanAsk() bool { return s.In.TTY && s.Err.TTY }

// YesFlag returns " --yes" if the flag was given, for a hint that repeats the command:
// without it, the suggested command would fail with another hint.
func YesFlag(yes bool) string {
	if yes {
		return " --yes"
	}
	return ""
}

// Confirm asks before something is destroyed. Where no one can answer it
// is CodeInvalid, so that a script never destroys by accident.
func (s *Shell) Confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.CanAsk() {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%s? No one is here to confirm it", question), "the same with --yes")
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
	return bourse.Errorf(bourse.CodeCanceled, "nothing was done")
}
