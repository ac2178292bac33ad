package companion

import (
	"os"
	"sync"
)

// readyVariable is the environment variable that contains the number of a file descriptor. The
// companion writes "ok" to this descriptor once it listens, or the error if it fails to start.
const readyVariable = "BOURSE_READY"

// readyDescriptor is the first descriptor after stdin, stdout and stderr.
const readyDescriptor = 3

// Readiness returns a function that reports the result of the start, nil or an error, to the
// process that started this one. Only the function's first call has an effect.
func Readiness() func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			if os.Getenv(readyVariable) == "" {
				return
			}
			_ = os.Unsetenv(readyVariable)
			f := os.NewFile(readyDescriptor, "ready") // closed below, so that no child inherits it
			text := "ok"
			if err != nil {
				text = err.Error()
			}
			_, _ = f.WriteString(text) // the reader may have exited
			_ = f.Close()
		})
	}
}
