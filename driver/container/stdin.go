package container

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse/driver"
)

// stdin is where a task's input is.
func (l layout) stdin(id driver.TaskID) string { return filepath.Join(l.task(id), "stdin") }

// makeStdin writes what a task's program reads on stdin into a file, in the
// task's directory, before anybody is asked to start it. The shim takes the
// path of a FIFO and opens it as any file: it copies what is there into the
// program's pipe and ends that at the end of the file. So no one has to feed
// it, whatever becomes of us. It is not synced: a host that goes down takes
// the program with it.
func (l layout) makeStdin(id driver.TaskID, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if err := os.WriteFile(l.stdin(id), text, 0o600); err != nil {
		return fmt.Errorf("make stdin: %w", err)
	}
	return nil
}
