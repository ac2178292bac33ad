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

// exitHelp tells the table to people, below the root command's help.
const exitHelp = `Exit status:
  0  done                            5  exists already, or is in another state
  1  our fault                       6  no capacity: nobody could fill the order
  2  wrong usage or request          7  unavailable: nothing happened, retry
  3  not found                       8  timeout: outcome unknown, ask
  4  not allowed                   130  interrupted
  "machine exec" ends with the exit status of its command, "task run" with that
  of its task.
`

// ExitCode gives the exit status of the command that returned err.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[remoteExit](err); ok {
		return int(s)
	}
	if n, ok := exits[bourse.CodeOf(err)]; ok {
		return n
	}
	return exits[bourse.CodeInternal]
}

// remoteExit ends the command with the exit status of what it ran elsewhere.
// Its output has said everything, so nothing is printed for it.
type remoteExit int

func (r remoteExit) Error() string { return fmt.Sprintf("exit status %d", int(r)) }

// hinted adds to an error what to try next.
type hinted struct {
	err   error
	hints []string
}

func (h *hinted) Error() string { return h.err.Error() }

func (h *hinted) Unwrap() error { return h.err }

// hint adds lines that say what to try to err, which may be nil.
func hint(err error, lines ...string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, lines}
}
