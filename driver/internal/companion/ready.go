package companion

import (
	"os"
	"sync"
)

// readyVariable names the descriptor on which a process tells who started it
// that it listens ("ok"), or why not.
const readyVariable = "BOURSE_READY"

// readyDescriptor is the first that is passed on after stdio.
const readyDescriptor = 3

// Readiness returns the function that tells who started this process whether
// the start went well. It does so once.
func Readiness() func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			if os.Getenv(readyVariable) == "" {
				return
			}
			_ = os.Unsetenv(readyVariable)
			f := os.NewFile(readyDescriptor, "ready") // closed below: no child sees it
			text := "ok"
			if err != nil {
				text = err.Error()
			}
			_, _ = f.WriteString(text) // who asked may be gone
			_ = f.Close()
		})
	}
}
