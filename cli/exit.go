package cli

import (
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// exits is the one table from error codes to exit statuses.
var exits = map[bourse.Code]int{
	bourse.CodeInternal:           1,
	bourse.CodeInvalid:            2,
	bourse.CodeNotFound:           3,
	bourse.CodeUnauthorized:       4,
	bourse.CodeForbidden:          4,
	bourse.CodeAlreadyExists:      5,
	bourse.CodeConflict:           5,
	bourse.CodeFailedPrecondition: 5,
	bourse.CodeInsufficient:       6,
	bourse.CodeRateLimited:        7,
	bourse.CodeUnavailable:        7,
	bourse.CodeTimeout:            8,
	bourse.CodeCanceled:           130,
}

// ExitOf returns the exit status of a code.
func ExitOf(code bourse.Code) int { return exits[code] }

// exitHelp is the table for people, below the root command's help.
const exitHelp = `Exit status:
  0  done                            5  exists already, or is in another state
  1  our fault                       6  no capacity: no worker could fill it
  2  wrong usage or request          7  unavailable: nothing happened, retry
  3  not found                       8  timeout: outcome unknown, ask
  4  not allowed                   130  interrupted
  "machine exec" ends with the exit status of its command: 127 when there is no
  such program, 126 when it cannot be executed. "task run" ends with that of its
  task, "machine run --attach" with that of the machine's program.
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
	if n, ok := exits[bourse.CodeOf(err)]; ok {
		return n
	}
	return exits[bourse.CodeInternal]
}

// ExitStatus ends the command with the exit status of what it ran elsewhere.
// Its output is enough, so nothing is printed for it.
type ExitStatus int

// Error implements error.
func (r ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(r)) }

// endsWith is an error that is printed, with an exit status of its own.
type endsWith struct {
	error
	status int
}

func (e *endsWith) Unwrap() error { return e.error }

// EndsWith gives err, which may be nil, an exit status other than its code's.
func EndsWith(err error, status int) error {
	if err == nil {
		return nil
	}
	return &endsWith{err, status}
}

// hinted adds to an error what to try next.
type hinted struct {
	err    error
	hints  []string
	beside bool // see Beside
}

func (h *hinted) Error() string { return h.err.Error() }

func (h *hinted) Unwrap() error { return h.err }

// Hints returns the hints that were added to err, nil without any.
func Hints(err error) []string {
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.hints
	}
	return nil
}

// Hint adds to err, which may be nil, lines with what to try.
func Hint(err error, lines ...string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, lines, isBeside(err)}
}

// Beside marks an error, which may be nil, as one that goes beside a JSON result
// that was printed, whole or in part: it is for a person, on standard error,
// also with --json.
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
