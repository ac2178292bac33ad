package process

import (
	"os"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Grace is how long a command's output is still read after the command has ended, if an
// escaped process holds the output open.
const Grace = 500 * time.Millisecond

// Files contains the daemon's ends of a command's input and outputs.
type Files interface {
	// CommandFiles returns the files for the command's stdin, stdout and stderr. They may be the same
	// file.
	CommandFiles() [3]*os.File
	// Sent closes the daemon's copies of the files returned by CommandFiles. Otherwise the
	// outputs would never end.
	Sent() error
	// Finish returns the stored output. It must be called after the command has ended. If escaped
	// processes hold the outputs open, Finish returns what has been received so far.
	Finish() (stdout, stderr []byte)
}

// Open creates a command's files and starts copying. Finish does not wait for a Stdin that blocks
// in Read, but does wait for a Stdout that blocks in Write.
func Open(exec driver.Exec) (Files, error) {
	if exec.Terminal == nil {
		return newPipes(exec)
	}
	return newTerminal(exec)
}
