package cli

import (
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// exitHelp describes the exit statuses below the root command's help.
const exitHelp = `Exit status:
  0  success                         5  already exists, or in another state
  1  internal error                  6  no capacity: no worker can fill the order
  2  invalid usage or request        7  unavailable: nothing happened, try again
  3  not found                       8  timeout: outcome unknown
  4  not allowed                   130  interrupted
  "machine exec" exits with the status of its command: 127 if the program does
  not exist, 126 if it cannot be executed. "task run" exits with the status of
  its task, "machine run --attach" with that of the machine's program.
`

// ExitCode returns the exit status of the command that returned err.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[ExitStatus](err); ok {
		return int(s)
	}
	if s, ok := errors.AsType[*endsWith](err); ok {
		return s.status
	}
	return bourse.CodeOf(err).ExitStatus()
}

// ExitStatus is an error that sets the command's exit status to that of a remote
// program. Nothing is printed for it, because the program has printed its own output.
type ExitStatus int

// Error implements error.
func (r ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(r)) }

// endsWith is an error with an exit status that does not follow from its code.
type endsWith struct {
	error
	status int
}

func (e *endsWith) Unwrap() error { return e.error }

// EndsWith sets the exit status of err. It returns nil if err is nil.
func EndsWith(err error, status int) error {
	if err == nil {
		return nil
	}
	return &endsWith{err, status}
}

// hinted is an error with hints.
type hinted struct {
	err    error
	hints  []string
	beside bool // see Beside
}

func (h *hinted) Error() string { return h.err.Error() }

func (h *hinted) Unwrap() error { return h.err }

// Hints returns the hints that were added to err, or nil.
func Hints(err error) []string {
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.hints
	}
	return nil
}

// Hint adds hints to err: commands or flags to try, one per line. It returns nil if err
// is nil.
func Hint(err error, lines ...string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, lines, isBeside(err)}
}

// Beside marks err as an error that follows a JSON result: since standard output already
// contains JSON, the error is printed to standard error as text, even with --json. It
// returns nil if err is nil.
func Beside(err error) error {
	if err == nil {
		return nil
	}
	return &hinted{err, Hints(err), true}
}

func isBeside(err error) bool {
	h, ok := errors.AsType[*hinted](err)
	return ok && h.beside
}
