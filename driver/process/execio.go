package process

import (
	"os"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Grace is how long to keep reading a command's output after the command exits, if another process still holds the
// output open.
const Grace = 500 * time.Millisecond

// Files manages the files through which the daemon writes a command's input and reads its output.
type Files interface {
	// CommandFiles returns the files for the command's stdin, stdout and stderr. Several of them
	// may be the same file.
	CommandFiles() [3]*os.File
	// Sent closes the daemon's copies of the files that CommandFiles returned. It must be called once the command has
	// its own copies; otherwise, the daemon would never see the end of the output.
	Sent() error
	// Finish waits for the rest of the output and returns the stored output. It must be called after the command has
	// ended. If another process still holds the output open, Finish returns after Grace, with the output received so
	// far.
	Finish() (stdout, stderr []byte)
}

// open creates the files for a command and starts copying data. Finish does not wait for a Stdin that
// blocks in Read, but does wait for a Stdout that blocks in Write.
func open(exec driver.Exec) (Files, error) {
	if exec.Terminal == nil {
		return newPipes(exec)
	}
	return newTerminal(exec)
}
