package cli

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
)

// Interrupted is what became of a command that a person has interrupted: one
// line, which is printed instead of an error.
type Interrupted string

// Error implements error.
func (i Interrupted) Error() string { return string(i) }

// interrupted reports whether err is the end of a command by a signal, which
// the person who sent it knows of.
func interrupted(ctx context.Context, err error) bool {
	if _, told := errors.AsType[Interrupted](err); told {
		return true
	}
	return ctx.Err() != nil && (bourse.CodeOf(err) == bourse.CodeCanceled || errors.Is(err, context.Cause(ctx)))
}

// endInterrupted prints what became of the command, if that is known, and
// returns the exit status.
func (s *Shell) endInterrupted(err error) int {
	if line, told := errors.AsType[Interrupted](err); told {
		s.Note(Clean(string(line)))
	}
	return bourse.CodeCanceled.ExitStatus()
}
