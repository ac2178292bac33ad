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

// confirm asks before something is destroyed. Where nobody sits to answer it
// is CodeInvalid, so that a script never destroys by accident.
func (s *shell) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.In.TTY || !s.Err.TTY {
		return hint(bourse.Errorf(bourse.CodeInvalid, "%s? Nobody is here to confirm it", question), "the same with --yes")
	}
	fmt.Fprintf(s.Err, "%s? [y/N] ", clean(question))
	line, err := s.input(ctx, func(r io.Reader) ([]byte, error) { return bufio.NewReader(r).ReadBytes('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(string(line))) {
	case "y", "yes":
		return nil
	}
	return bourse.Errorf(bourse.CodeCanceled, "nothing was done")
}
