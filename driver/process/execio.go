package process

import (
	"os"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Grace is how long an output may remain open after its command has ended, because an escaped process keeps it open.
const Grace = 500 * time.Millisecond

// Files holds the daemon's ends of a command's input and outputs.
type Files interface {
	// Theirs returns the files for the command's stdin, stdout and stderr. They may be the same.
	Theirs() [3]*os.File
	// Sent closes our copies of Theirs, without which the outputs would never end.
	Sent() error
	// Finish returns the retained output. It must be called when the command has ended. If escaped processes keep the
	// outputs open, it returns what was received so far.
	Finish() (stdout, stderr []byte)
}

// Open creates the files of a command and starts copying. It does not wait for a Stdin that blocks in Read, but does
// wait for a Stdout that blocks in Write.
func Open(exec driver.Exec) (Files, error) {
	if exec.Terminal == nil {
		return newPipes(exec)
	}
	return newTerminal(exec)
}
