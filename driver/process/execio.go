package process

import (
	"os"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Grace is how long an output may stay open after its command has ended: a
// process that has escaped keeps it so.
const Grace = 500 * time.Millisecond

// Files are the daemon's ends of a command's input and outputs.
type Files interface {
	// Theirs are passed to the command as stdin, stdout and stderr. They may be
	// the same.
	Theirs() [3]*os.File
	// Sent closes ours of Theirs, or the outputs would never end.
	Sent() error
	// Finish returns what is kept of the outputs. It is called when the command
	// has ended: processes that have escaped may keep its outputs open, then
	// what came until now is all.
	Finish() (stdout, stderr []byte)
}

// Open makes the files of a command, and begins to copy. A Stdin that blocks in
// Read is not waited for; a Stdout that blocks in Write is.
func Open(exec driver.Exec) (Files, error) {
	if exec.Terminal == nil {
		return newPipes(exec)
	}
	return newTerminal(exec)
}
